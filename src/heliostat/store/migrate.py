"""Bring a database to the present schema."""

from pathlib import Path

from sqlalchemy import create_engine, inspect, text

from heliostat.store import (  # noqa: F401 - their tables belong to the schema
    image_tables,
    notice_tables,
    schedule_tables,
    service_tables,
    workflow_tables,
)
from heliostat.store.database import sqlite_address

HEAD = "0023"  # the newest file in migrations/versions; a test keeps this true


def migrate(path: Path) -> None:
    """Create or upgrade. An up-to-date database is recognised without loading Alembic, for a quick start."""
    if revision_of(path) == HEAD:
        return
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.attributes["address"] = sqlite_address(path)
    command.upgrade(config, "head")


def revision_of(path: Path) -> str | None:
    """That of a database; None: there is none yet."""
    if not path.exists():
        return None
    engine = create_engine(sqlite_address(path))
    try:
        with engine.connect() as conn:
            if not inspect(conn).has_table("alembic_version"):
                return None
            found: str | None = conn.execute(text("SELECT version_num FROM alembic_version")).scalar()
            return found
    finally:
        engine.dispose()
