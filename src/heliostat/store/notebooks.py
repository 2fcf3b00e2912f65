"""Batch notebooks in the database: what they are started with must stay as long as they are not over."""

from sqlalchemy.dialects.sqlite import insert

from heliostat.store import schema
from heliostat.store.database import Transaction

_notebooks = schema.notebooks


def put_notebook(tx: Transaction, job_id: int, environment: str) -> None:
    """Said again, it is the same."""
    tx.conn.execute(insert(_notebooks).values(job_id=job_id, environment=environment).on_conflict_do_nothing())
