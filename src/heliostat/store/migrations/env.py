"""Alembic's entry point: run the migrations on the given database, all of them or none."""

from typing import Any

from alembic import context
from sqlalchemy import Connection, create_engine, event

from heliostat.store.schema import metadata

engine = create_engine(context.config.attributes["address"])


# SQLite can take back the making of tables, but its driver and Alembic would commit each one by itself: a server
# killed in between left half a schema, with which no later one could start.
@event.listens_for(engine, "connect")
def _configure(dbapi: Any, _record: object) -> None:
    dbapi.isolation_level = None


@event.listens_for(engine, "begin")
def _begin(conn: Connection) -> None:
    conn.exec_driver_sql("BEGIN IMMEDIATE")


with engine.connect() as connection:
    context.configure(
        connection=connection, target_metadata=metadata, render_as_batch=True, transactional_ddl=True
    )
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
