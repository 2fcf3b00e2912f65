"""Alembic's entry point: run the migrations on the given database, all of them or none."""

from alembic import context

from heliostat.store.schema import metadata

with context.config.attributes["engine"].connect() as connection:
    context.configure(
        connection=connection, target_metadata=metadata, render_as_batch=True, transactional_ddl=True
    )
    with context.begin_transaction():
        context.run_migrations()
