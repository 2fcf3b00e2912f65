"""Jobs that are over: brought in from elsewhere, and read for exports, oldest first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, func, insert, select

from heliostat.models import AttemptUsage, Job, JobEvent, JobId, JobState
from heliostat.store import schema
from heliostat.store.database import Transaction, query_batches
from heliostat.store.rows import event_to_row, job_to_row
from heliostat.store.timestamps import to_timestamp
from heliostat.store.usage import add_attempt_usage

_SAME = ("node", "devices", "places", "gpu_type", "state", "started_at", "ended_at", "exit_code", "reason")

_jobs, _attempts, _projects = schema.jobs, schema.attempts, schema.projects


def add_finished_jobs(tx: Transaction, jobs: Sequence[Job]) -> None:
    """Jobs that are over, with one attempt each if they ever started. Their numbers are drawn by the caller."""
    tx.conn.execute(insert(schema.jobs), [job_to_row(job) for job in jobs])
    if started := [job for job in jobs if job.started_at is not None]:
        tx.conn.execute(insert(schema.attempts), [_attempt_of(job_to_row(job)) for job in started])
    told = [event for job in jobs for event in _story(job)]
    numbers = tx.ids.allocate("events", len(told))
    rows = [event_to_row(event) | {"id": number} for event, number in zip(told, numbers, strict=True)]
    tx.conn.execute(insert(schema.events), rows)


@dataclass(frozen=True, slots=True)
class ImportedJob:
    """A job that ran elsewhere, still without a number, and what it used."""

    job: Job
    usage: AttemptUsage | None = None


def add_imported_jobs(tx: Transaction, past: Sequence[ImportedJob]) -> int:
    """Those not yet known by their origin, numbered in the order they were submitted; how many they were.

    No events: nothing has happened here."""
    wanted = {(one.job.origin, one.job.submitted_at.timestamp()): one for one in past}
    known = _known_origins(tx, [str(origin) for origin, _ in wanted])
    fresh = sorted((wanted[key] for key in wanted.keys() - known), key=lambda one: one.job.submitted_at)
    if not fresh:
        return 0
    numbers = tx.ids.allocate("jobs", len(fresh))
    jobs = [replace(one.job, id=number) for one, number in zip(fresh, numbers, strict=True)]
    rows = [job_to_row(job) for job in jobs]
    tx.conn.execute(insert(schema.jobs), rows)
    if started := [_attempt_of(row) for row in rows if row["started_at"] is not None]:
        tx.conn.execute(insert(schema.attempts), started)
    used = zip(jobs, (one.usage for one in fresh), strict=True)
    add_attempt_usage(tx, {job.attempt_id: usage for job, usage in used if usage is not None})
    return len(jobs)


def _known_origins(tx: Transaction, origins: Sequence[str]) -> set[tuple[str | None, float]]:
    c, found = schema.jobs.c, set[tuple[str | None, float]]()
    for some in query_batches(origins):
        query = select(c.origin, c.submitted_at).where(c.origin.in_(some))
        found |= {(origin, at) for origin, at in tx.conn.execute(query)}
    return found


def _attempt_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The only attempt of a job that came to run."""
    values = {name: row[name] for name in _SAME}
    return {"job_id": row["id"], "number": 1, "created_at": row["started_at"], **values}


def _story(job: Job) -> list[JobEvent]:
    story = [JobEvent(0, job.id, 0, job.submitted_at, "submitted", JobState.PENDING)]
    if job.started_at is not None:
        story.append(JobEvent(0, job.id, 1, job.started_at, "running", JobState.RUNNING, job.node))
    if job.ended_at is not None:
        story.append(JobEvent(0, job.id, job.attempt, job.ended_at, "ended", job.state, job.reason))
    return story


@dataclass(frozen=True, slots=True)
class SubmissionPeriod:
    """By when they were submitted; None does not restrict."""

    since: datetime | None = None
    until: datetime | None = None


def list_finished_job_rows(
    conn: Connection, wanted: SubmissionPeriod, after: JobId, limit: int
) -> list[RowMapping]:
    """Rows of the table of jobs with `department`, `first_started_at`, `run_seconds` and `attempts` of each."""
    ran = _attempts.c.ended_at - _attempts.c.started_at
    query = (
        select(
            *_COLUMNS,
            _projects.c.department,
            func.min(_attempts.c.started_at).label("first_started_at"),
            func.coalesce(func.sum(ran), 0.0).label("run_seconds"),
            func.count(_attempts.c.started_at).label("attempts"),
        )
        .join(_projects, _projects.c.name == _jobs.c.project)
        .join(_attempts, _attempts.c.job_id == _jobs.c.id, isouter=True)
        .where(_jobs.c.ended_at.is_not(None), _jobs.c.id > after)
        .group_by(*_COLUMNS, _projects.c.department)
        .order_by(_jobs.c.id)
        .limit(limit)
    )
    if wanted.since is not None:
        query = query.where(_jobs.c.submitted_at >= to_timestamp(wanted.since))
    if wanted.until is not None:
        query = query.where(_jobs.c.submitted_at < to_timestamp(wanted.until))
    return [row._mapping for row in conn.execute(query)]


_NAMES = (
    "id",
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
