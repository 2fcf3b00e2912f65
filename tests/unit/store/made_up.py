"""Somebody, and jobs of theirs, for tests of the database."""

from dataclasses import replace
from datetime import UTC, datetime

from sqlalchemy import insert

from heliostat.models import Job, JobSpec, JobState, Resources
from heliostat.store import schema
from heliostat.store.database import Transaction

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def add_people(tx: Transaction) -> None:
    tx.conn.execute(insert(schema.departments).values(name="default"))
    tx.conn.execute(insert(schema.projects).values(name="default", department="default"))
    tx.conn.execute(insert(schema.users).values(name="ann", role="user", active=True, created_at=0.0))


def a_job(number: int, **fields: object) -> Job:
    spec = JobSpec(("true",), env={"A": "'; DROP TABLE jobs; --"})
    job = Job(number, "batch", "job", JobState.PENDING, "ann", "ann", "default", Resources(), spec, NOW)
    return replace(job, **fields)  # type: ignore[arg-type]
