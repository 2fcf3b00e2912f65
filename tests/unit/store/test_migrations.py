from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect

import heliostat.store.migrate as module
from heliostat.store import schema
from heliostat.store.database import Store
from heliostat.store.migrate import HEAD, migrate


def test_the_migrations_make_exactly_the_schema(tmp_path: Path) -> None:
    migrate(tmp_path / "migrated.db")
    migrated = create_engine(f"sqlite:///{tmp_path / 'migrated.db'}")
    with migrated.connect() as conn:
        options = {"compare_type": True, "compare_server_default": True}
        assert compare_metadata(MigrationContext.configure(conn, opts=options), schema.metadata) == []
    direct = create_engine(f"sqlite:///{tmp_path / 'direct.db'}")
    schema.metadata.create_all(direct)
    for table in schema.metadata.tables:
        ours, theirs = (
            {
                "keys": inspect(engine).get_pk_constraint(table)["constrained_columns"],
                "nullable": {c["name"]: c["nullable"] for c in inspect(engine).get_columns(table)},
                "foreign": sorted(str(key["referred_table"]) for key in inspect(engine).get_foreign_keys(table)),
                "unique": sorted(tuple(u["column_names"]) for u in inspect(engine).get_unique_constraints(table)),
                "indexes": sorted(
                    (i["name"], tuple(i["column_names"])) for i in inspect(engine).get_indexes(table)
                ),
            }
            for engine in (migrated, direct)
        )
        assert ours == theirs, table
    migrated.dispose()
    direct.dispose()


def test_head_is_the_newest_migration_and_there_is_only_one_line_of_them() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(module.__file__).with_name("migrations")))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [HEAD]
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
