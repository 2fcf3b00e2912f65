import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

import heliostat.store.schema_upgrade as module
from heliostat.errors import HeliostatError
from heliostat.store import schema
from heliostat.store.database import Store
from heliostat.store.schema_upgrade import LATEST_REVISION, database_revision, migrate, upgrade


def test_the_migrations_make_exactly_the_schema(tmp_path: Path) -> None:
    upgrade(tmp_path / "migrated.db")
    migrated = create_engine(f"sqlite:///{tmp_path / 'migrated.db'}")
    with migrated.connect() as conn:
        options = {"compare_type": True, "compare_server_default": True}
        assert compare_metadata(MigrationContext.configure(conn, opts=options), schema.metadata) == []
    migrated.dispose()


def test_a_new_database_is_what_the_migrations_make(tmp_path: Path) -> None:
    upgrade(tmp_path / "stepwise.db")
    migrate(tmp_path / "new.db")
    assert database_revision(tmp_path / "new.db") == database_revision(tmp_path / "stepwise.db") == LATEST_REVISION
    new, stepwise = (_parts(tmp_path / name) for name in ("new.db", "stepwise.db"))
    assert new == stepwise


def _parts(path: Path) -> dict[str, list[str]]:
    """What SQLite keeps of each table and index, in any order: a column added later comes last."""
    with closing(sqlite3.connect(path)) as conn:
        found = conn.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {name: sorted(_clauses(sql)) for name, sql in found}


def _clauses(sql: str) -> list[str]:
    plain = " ".join(sql.split()).replace("CONSTRAINT alembic_version_pkc ", "").replace('"', "")
    return re.split(r", (?![^()]*\))", re.sub(r"^(CREATE TABLE \w+) \( | \)$", r"\1, ", plain))


def test_head_is_the_newest_migration_and_there_is_only_one_line_of_them() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(module.__file__).with_name("migrations")))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [LATEST_REVISION]
    assert [script.revision for script in scripts.walk_revisions()][-1] == "0001"


def test_migrating_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "heliostat.db"
    migrate(path)
    Store(path).close()
    before = path.read_bytes()
    migrate(path)
    assert path.read_bytes() == before


def test_a_path_with_signs_that_mean_something_in_an_address_works(tmp_path: Path) -> None:
    folder = tmp_path / "100% odd #? folder"
    folder.mkdir()
    migrate(folder / "heliostat.db")
    Store(folder / "heliostat.db").close()
    assert (folder / "heliostat.db").stat().st_size > 0


def test_tables_of_which_nobody_knows_the_version_are_not_taken_for_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "heliostat.db"
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("CREATE TABLE jobs (id INTEGER)")
    with pytest.raises(OperationalError, match="already exists"):
        migrate(path)
    assert database_revision(path) is None


def test_renamed_tables_and_columns_keep_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "heliostat.db"
    upgrade(path, "0023")
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute(
            "INSERT INTO notices (id, user, channel, address, occasions, salt, created_at, after_event)"
            " VALUES (7, 'anna', 'email', 'anna@example.org', 'failed', 'salt', 0, 3)"
        )
        conn.execute("INSERT INTO notice_deliveries VALUES ('d1', 7, '[4]', 0, 'waiting', 0, 0, 1, NULL)")
        conn.execute(
            "INSERT INTO events (job_id, attempt, at, kind, state) VALUES (1, 1, 0, 'handed_over', 'pending')"
        )
    migrate(path)
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("SELECT id, triggers FROM notifications").fetchall() == [(7, "failed")]
        assert conn.execute("SELECT notification_id FROM notification_deliveries").fetchall() == [(7,)]
        assert conn.execute("SELECT kind FROM events").fetchall() == [("dispatched",)]


def test_a_database_of_a_newer_version_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "heliostat.db"
    migrate(path)
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("UPDATE alembic_version SET version_num = '9999'")
    before = path.read_bytes()
    with pytest.raises(HeliostatError, match=r"made by a newer Heliostat \(schema 9999") as refused:
        migrate(path)
    assert "Upgrade Heliostat" in refused.value.hint
    assert path.read_bytes() == before


@pytest.mark.parametrize("first_damaged_byte", [0, 100])
def test_a_damaged_database_is_refused_and_not_touched(tmp_path: Path, first_damaged_byte: int) -> None:
    path = tmp_path / "heliostat.db"
    migrate(path)
    damaged = path.read_bytes()[:first_damaged_byte] + b"x" * 8192
    path.write_bytes(damaged)
    with pytest.raises(HeliostatError, match="is damaged") as refused:
        migrate(path)
    assert "Restore a backup" in refused.value.hint
    assert path.read_bytes() == damaged


def test_a_migration_keeps_a_copy_of_the_database_before_it_and_none_older(tmp_path: Path) -> None:
    path = tmp_path / "heliostat.db"
    upgrade(path, "0023")
    (tmp_path / "heliostat.db.schema-0011").touch()
    migrate(path)
    assert [copy.name for copy in tmp_path.glob("heliostat.db.schema-*")] == ["heliostat.db.schema-0023"]
    assert database_revision(tmp_path / "heliostat.db.schema-0023") == "0023"
