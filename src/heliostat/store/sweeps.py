"""Sweeps in the database: which element of an array has which values."""

import json
from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, insert, or_, select

from heliostat.models import JobId
from heliostat.models.workflows import Sweep
from heliostat.store.database import Transaction
from heliostat.store.times import to_seconds, to_time
from heliostat.store.workflow_tables import sweeps

_s = sweeps.c


def add_sweep(tx: Transaction, made: Sweep) -> int:
    values = {
        "name": made.name,
        "user": made.user,
        "project": made.project,
        "created_at": to_seconds(made.created_at),
        "array_id": made.array_id,
        "first_job": made.first_job,
        "last_job": made.last_job,
        "table": json.dumps([dict(row) for row in made.table]),
    }
    key = tx.conn.execute(insert(sweeps).values(values)).inserted_primary_key
    return int(key[0]) if key else 0


def find_sweep(conn: Connection, number: int) -> Sweep | None:
    row = conn.execute(select(sweeps).where(_s.id == number)).first()
    return None if row is None else _sweep(row)


def sweep_of(conn: Connection, first_job: JobId) -> Sweep | None:
    row = conn.execute(select(sweeps).where(_s.first_job == first_job)).first()
    return None if row is None else _sweep(row)


def list_sweeps(
    conn: Connection, user: str | None, projects: Collection[str], limit: int, before: int | None = None
) -> list[Sweep]:
    """Newest first: those of a user and of these projects; None: all."""
    query = select(sweeps).order_by(_s.id.desc()).limit(limit)
    if user is not None:
        query = query.where(or_(_s.user == user, _s.project.in_(list(projects))))
    if before is not None:
        query = query.where(_s.id < before)
    return [_sweep(row) for row in conn.execute(query)]


def _sweep(row: Any) -> Sweep:
    return Sweep(
        id=row.id,
        name=row.name,
        user=row.user,
        project=row.project,
        created_at=to_time(row.created_at),
        array_id=row.array_id,
        first_job=row.first_job,
        last_job=row.last_job,
        table=tuple(json.loads(row._mapping["table"])),
    )
