"""Alembic's entry point: run the migrations on the given database."""

from alembic import context
from sqlalchemy import create_engine

from heliostat.store.schema import metadata

engine = create_engine(context.config.attributes["address"])
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
