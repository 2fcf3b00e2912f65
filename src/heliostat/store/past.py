"""Jobs that are over, oldest first, with what all their attempts took: for exports."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, RowMapping, func, select

from heliostat.models import JobId
from heliostat.store import schema
from heliostat.store.times import to_seconds

_jobs, _attempts, _projects = schema.jobs, schema.attempts, schema.projects


@dataclass(frozen=True, slots=True)
class Period:
    """By when they were submitted; None does not restrict."""

    since: datetime | None = None
    until: datetime | None = None


def past_jobs(conn: Connection, wanted: Period, after: JobId, limit: int) -> list[RowMapping]:
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
        query = query.where(_jobs.c.submitted_at >= to_seconds(wanted.since))
    if wanted.until is not None:
        query = query.where(_jobs.c.submitted_at < to_seconds(wanted.until))
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
