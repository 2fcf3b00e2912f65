"""Alembic's entry point: runs the migrations on the given database atomically."""

from alembic import context

from heliostat.store.schema import metadata

with context.config.attributes["engine"].connect() as connection:
    context.configure(
        connection=connection, target_metadata=metadata, render_as_batch=True, transactional_ddl=True
    )
    with context.begin_transaction():
        context.run_migrations()
