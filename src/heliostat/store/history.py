"""Finished jobs: import from other systems, and rows for exports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, func, insert, select

from heliostat.models import AttemptUsage, Job, JobEvent, JobId, JobState
from heliostat.store import schema
from heliostat.store.database import Transaction, query_batches
from heliostat.store.job_rows import event_to_row, job_to_row
from heliostat.store.timestamps import to_timestamp
from heliostat.store.usage import add_attempt_usage

_COPIED_COLUMNS = (
    "node",
    "devices",
    "places",
    "gpu_type",
    "state",
    "started_at",
    "ended_at",
    "exit_code",
    "reason",
)

_jobs, _attempts, _projects = schema.jobs, schema.attempts, schema.projects


def add_finished_jobs(tx: Transaction, jobs: Sequence[Job]) -> None:
    """Finished jobs with one attempt each, if they started. The caller allocates their numbers."""
    tx.conn.execute(insert(schema.jobs), [job_to_row(job) for job in jobs])
    if started := [job for job in jobs if job.started_at is not None]:
        tx.conn.execute(insert(schema.attempts), [_attempt_of(job_to_row(job)) for job in started])
    events = [event for job in jobs for event in _events_of(job)]
    numbers = tx.ids.allocate("events", len(events))
    rows = [event_to_row(event) | {"id": number} for event, number in zip(events, numbers, strict=True)]
    tx.conn.execute(insert(schema.events), rows)


@dataclass(frozen=True, slots=True)
class ImportedJob:
    """A job that ran in another system, without a number, and its usage."""

    job: Job
    usage: AttemptUsage | None = None


def add_imported_jobs(tx: Transaction, imported: Sequence[ImportedJob]) -> int:
    """Add jobs with an unknown origin, numbered in the order of submission; return their number.

    Without events, as nothing happened here."""
    by_origin = {(entry.job.origin, entry.job.submitted_at.timestamp()): entry for entry in imported}
    known = _known_origins(tx, [str(origin) for origin, _ in by_origin])
    new = sorted((by_origin[key] for key in by_origin.keys() - known), key=lambda entry: entry.job.submitted_at)
    if not new:
        return 0
    numbers = tx.ids.allocate("jobs", len(new))
    jobs = [replace(entry.job, id=number) for entry, number in zip(new, numbers, strict=True)]
    rows = [job_to_row(job) for job in jobs]
    tx.conn.execute(insert(schema.jobs), rows)
    if started := [_attempt_of(row) for row in rows if row["started_at"] is not None]:
        tx.conn.execute(insert(schema.attempts), started)
    used = zip(jobs, (entry.usage for entry in new), strict=True)
    add_attempt_usage(tx, {job.attempt_id: usage for job, usage in used if usage is not None})
    return len(jobs)


def _known_origins(tx: Transaction, origins: Sequence[str]) -> set[tuple[str | None, float]]:
    c, known = schema.jobs.c, set[tuple[str | None, float]]()
    for batch in query_batches(origins):
        query = select(c.origin, c.submitted_at).where(c.origin.in_(batch))
        known |= {(origin, at) for origin, at in tx.conn.execute(query)}
    return known


def _attempt_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The only attempt of an imported job."""
    values = {name: row[name] for name in _COPIED_COLUMNS}
    return {"job_id": row["id"], "number": 1, "created_at": row["started_at"], **values}


def _events_of(job: Job) -> list[JobEvent]:
    events = [JobEvent(0, job.id, 0, job.submitted_at, "submitted", JobState.PENDING)]
    if job.started_at is not None:
        events.append(JobEvent(0, job.id, 1, job.started_at, "running", JobState.RUNNING, job.node))
    if job.ended_at is not None:
        events.append(JobEvent(0, job.id, job.attempt, job.ended_at, "ended", job.state, job.reason))
    return events


@dataclass(frozen=True, slots=True)
class SubmissionPeriod:
    """A period of submission; None: no limit."""

    since: datetime | None = None
    until: datetime | None = None


def list_finished_job_rows(
    conn: Connection, period: SubmissionPeriod, after: JobId, limit: int
) -> list[RowMapping]:
    """Rows of finished jobs, oldest first, with `department`, `first_started_at`, `run_seconds` and `attempts`."""
    run_seconds = _attempts.c.ended_at - _attempts.c.started_at
    query = (
        select(
            *_COLUMNS,
            _projects.c.department,
            func.min(_attempts.c.started_at).label("first_started_at"),
            func.coalesce(func.sum(run_seconds), 0.0).label("run_seconds"),
            func.count(_attempts.c.started_at).label("attempts"),
        )
        .join(_projects, _projects.c.name == _jobs.c.project)
        .join(_attempts, _attempts.c.job_id == _jobs.c.id, isouter=True)
        .where(_jobs.c.ended_at.is_not(None), _jobs.c.id > after)
        .group_by(*_COLUMNS, _projects.c.department)
        .order_by(_jobs.c.id)
        .limit(limit)
    )
    if period.since is not None:
        query = query.where(_jobs.c.submitted_at >= to_timestamp(period.since))
    if period.until is not None:
        query = query.where(_jobs.c.submitted_at < to_timestamp(period.until))
    return [row._mapping for row in conn.execute(query)]


_NAMES = (
    "id",
    "name",
    "state",
    "user",
    "project",
    "cpus",
    "memory_mib",
    "gpus",
    "gpu_type",
    "placement",
    "time_limit_seconds",
    "priority_class",
    "preemptible",
    "preemptions",
    "submitted_at",
    "ended_at",
    "origin",
)
_COLUMNS = tuple(_jobs.c[name] for name in _NAMES)
