"""Creates and upgrades the database schema."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, create_engine, event, inspect, text
from sqlalchemy.exc import DatabaseError

from heliostat.errors import HeliostatError
from heliostat.store.database import sqlite_url
from heliostat.store.database_copy import copy_database
from heliostat.store.schema import metadata

LATEST_REVISION = "0033"  # the newest file in migrations/versions; a test checks this
_CORRUPT_ERRORS = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_VERSION = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))


def migrate(path: Path) -> None:
    """Create or upgrade atomically. Only an upgrade imports Alembic, which is large."""
    with _explain_corruption(path):
        revision = database_revision(path)
        if revision is None:
            _create(path)
        elif revision > LATEST_REVISION:
            raise HeliostatError(
                f"{path} was made by a newer Heliostat (schema {revision}; this one knows {LATEST_REVISION}).",
                "Upgrade Heliostat, or restore a backup from before the upgrade.",
                code="newer_database",
            )
        elif revision != LATEST_REVISION:
            _keep_copy(path, revision)
            upgrade(path)


def _keep_copy(path: Path, revision: str) -> None:
    """An older Heliostat cannot read the upgraded database. Copies of earlier upgrades are removed."""
    copy = path.with_name(f"{path.name}.schema-{revision}")
    copy_database(path, copy)
    for earlier in path.parent.glob(f"{path.name}.schema-*"):
        if earlier != copy:
            earlier.unlink()


def upgrade(path: Path, revision: str = "head") -> None:
    """Run the migrations. On an empty database the result equals that of `migrate`; a test checks this."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.attributes["engine"] = engine = _engine(path)
    try:
        command.upgrade(config, revision)
    finally:
        engine.dispose()


def database_revision(path: Path) -> str | None:
    """None: the database does not exist yet."""
    if not path.exists():
        return None
    engine = create_engine(sqlite_url(path))
    try:
        with _explain_corruption(path), engine.connect() as conn:
            if not inspect(conn).has_table(_VERSION.name):
                return None
            revision: str | None = conn.execute(text("SELECT version_num FROM alembic_version")).scalar()
            return revision
    finally:
        engine.dispose()


@contextlib.contextmanager
def _explain_corruption(path: Path) -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        if not getattr(error.orig, "sqlite_errorname", "").startswith(_CORRUPT_ERRORS):
            raise
        raise HeliostatError(
            f"{path} is damaged: {error.orig}.",
            "Restore a backup. Keep the damaged file and those beside it: parts of it may be readable.",
            code="damaged_database",
        ) from error


def _create(path: Path) -> None:
    engine = _engine(path)
    try:
        with engine.begin() as conn:
            metadata.create_all(conn, checkfirst=False)  # existing tables without a version are an error
            _VERSION.create(conn, checkfirst=True)
            conn.execute(_VERSION.insert().values(version_num=LATEST_REVISION))
    finally:
        engine.dispose()


def _engine(path: Path) -> Engine:
    """SQLite can roll back the creation of tables, but its driver would commit each one separately: a server
    killed in between would leave an incomplete schema."""
    engine = create_engine(sqlite_url(path))

    @event.listens_for(engine, "connect")
    def _configure(dbapi: Any, _record: object) -> None:
        dbapi.isolation_level = None

    @event.listens_for(engine, "begin")
    def _begin(conn: Connection) -> None:
        conn.exec_driver_sql("BEGIN IMMEDIATE")

    return engine
