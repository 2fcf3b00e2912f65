"""Firings of schedules in the database: at most one for each due time."""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from heliostat.models import JobId
from heliostat.models.schedules import Firing, FiringState, ScheduleId
from heliostat.store.database import Transaction
from heliostat.store.schema import firings
from heliostat.store.timestamps import to_datetime, to_timestamp

_c = firings.c
_TIMES = ("due_at", "at", "ended_at")


def add_firing(tx: Transaction, firing: Firing) -> int:
    """Raises if the due time already has a firing, so that the whole transaction is rolled back."""
    values = {field.name: getattr(firing, field.name) for field in fields(Firing) if field.name != "id"}
    key = tx.conn.execute(insert(firings).values(_columns(values))).inserted_primary_key
    tx.changes.schedules_changed = True
    return int(key[0]) if key else 0


def update_firing(tx: Transaction, firing_id: int, **values: Any) -> None:
    tx.conn.execute(update(firings).where(_c.id == firing_id).values(_columns(values)))
    tx.changes.schedules_changed = True


def find_firing(conn: Connection, firing_id: int) -> Firing | None:
    row = conn.execute(select(firings).where(_c.id == firing_id)).first()
    return None if row is None else _firing(row)


def find_firing_by_due_time(conn: Connection, schedule_id: ScheduleId, due_at: datetime) -> Firing | None:
    query = select(firings).where(_c.schedule_id == schedule_id, _c.due_at == to_timestamp(due_at))
    row = conn.execute(query).first()
    return None if row is None else _firing(row)


def remove_firing(tx: Transaction, firing_id: int) -> None:
    tx.conn.execute(delete(firings).where(_c.id == firing_id))


def list_firings(
    conn: Connection, schedule_id: ScheduleId, limit: int, before: datetime | None = None
) -> list[Firing]:
    """Newest first; only those due before this time."""
    query = select(firings).where(_c.schedule_id == schedule_id).order_by(_c.due_at.desc()).limit(limit)
    if before is not None:
        query = query.where(_c.due_at < to_timestamp(before))
    return [_firing(row) for row in conn.execute(query)]


def list_unfinished_firings(conn: Connection, schedule_id: ScheduleId | None = None) -> list[Firing]:
    """Firings with unfinished jobs, oldest first."""
    query = select(firings).where(_c.state == FiringState.RUNNING.value).order_by(_c.due_at)
    if schedule_id is not None:
        query = query.where(_c.schedule_id == schedule_id)
    return [_firing(row) for row in conn.execute(query)]


def list_unfinished_firings_of_jobs(conn: Connection, job_ids: Collection[JobId]) -> list[Firing]:
    """Firings of any of these jobs. One query for all: hundreds may have ended."""
    numbers = sorted(job_ids)
    if not numbers:
        return []
    query = select(firings).where(_c.state == FiringState.RUNNING.value)
    query = query.where(_c.job_id <= numbers[-1], _c.last_job_id >= numbers[0])
    return [_firing(row) for row in conn.execute(query) if _has_any_job(row, numbers)]


def _has_any_job(row: Row[Any], numbers: Sequence[JobId]) -> bool:
    """Whether one of these sorted numbers is one of its jobs."""
    at = bisect_left(numbers, row.job_id)
    return at < len(numbers) and numbers[at] <= row.last_job_id


def find_firing_of_job(conn: Connection, job_id: JobId) -> Firing | None:
    """The firing whose newest jobs include this one."""
    query = select(firings).where(_c.job_id <= job_id).order_by(_c.job_id.desc()).limit(1)
    row = conn.execute(query).first()
    return None if row is None or row.last_job_id < job_id else _firing(row)


def prune_firings(tx: Transaction, schedule_id: ScheduleId, keep: int) -> None:
    """Remove all but the newest firings and those with unfinished jobs."""
    query = select(_c.due_at).where(_c.schedule_id == schedule_id).order_by(_c.due_at.desc()).offset(keep).limit(1)
    if (oldest := tx.conn.execute(query).scalar()) is not None:
        old = (_c.schedule_id == schedule_id, _c.due_at <= oldest, _c.state != FiringState.RUNNING.value)
        tx.conn.execute(delete(firings).where(*old))


def _firing(row: Row[Any]) -> Firing:
    values = dict(row._mapping)
    values |= {name: to_datetime(values[name]) for name in _TIMES}
    values["state"] = FiringState(values["state"])
    return Firing(**values)


def _columns(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _column(value) for name, value in values.items()}


def _column(value: Any) -> Any:
    if isinstance(value, FiringState):
        return value.value
    return to_timestamp(value) if isinstance(value, datetime) else value
