"""Usage report of a period: used and wasted hours, and waiting times, by department, project, user or GPU type."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, func, or_, select

from heliostat.models import JobId, JobState
from heliostat.store import schema
from heliostat.store.database import query_batches
from heliostat.store.timestamps import to_datetime, to_timestamp
from heliostat.store.usage import cards_expression, task_count_expression

_jobs, _attempts, _projects = schema.jobs, schema.attempts, schema.projects
_idle = schema.idle_jobs
_HOUR = 3600.0
_WASTED_STATES = (JobState.FAILED, JobState.LOST, JobState.TIMED_OUT, JobState.PREEMPTED)

_Query = Select[*tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class ReportPeriod:
    """A period; running attempts count until `now`."""

    start: datetime
    end: datetime
    now: datetime


@dataclass(frozen=True, slots=True)
class ReportScope:
    """Restricts a report to the jobs of this user and of these projects."""

    user: str
    projects: Collection[str]


@dataclass(frozen=True, slots=True)
class UsageTotals:
    name: str
    jobs: int
    gpu_hours: float
    cpu_hours: float
    wasted_gpu_hours: float
    wasted_cpu_hours: float


@dataclass(frozen=True, slots=True)
class GpuJob:
    """A job with GPUs that ran in a period."""

    job_id: JobId
    department: str
    project: str
    user: str
    gpus: float  # of each task
    tasks: int
    gpu_hours: float  # allocated in the period
    returned_gpu_hours: float  # given back early, if it ended in the period


@dataclass(frozen=True, slots=True)
class WaitTimes:
    """Of jobs that first started in the period, in seconds."""

    mean: float
    median: float


def sum_usage(
    conn: Connection, period: ReportPeriod, by: str, scope: ReportScope | None = None
) -> list[UsageTotals]:
    """By department, project, user or GPU type: of all attempts, the time within the period."""
    name = _name(by)
    allocated = _allocated_seconds(period) * task_count_expression()
    is_wasted = _attempts.c.state.in_([state.value for state in _WASTED_STATES])
    wasted = case((is_wasted, _wasted_seconds(period)), else_=0.0) * task_count_expression()
    sums = [
        func.sum(seconds * column) / _HOUR
        for seconds in (allocated, wasted)
        for column in (_cards(), _jobs.c.cpus)
    ]
    query: _Query = select(name, func.count(_jobs.c.id.distinct()), *sums)
    rows = conn.execute(_ran_in(query, period, scope).group_by(name).order_by(name))
    return [
        UsageTotals(name, jobs, gpu, cpu, lost_gpu, lost_cpu) for name, jobs, gpu, cpu, lost_gpu, lost_cpu in rows
    ]


def list_gpu_jobs(conn: Connection, period: ReportPeriod, scope: ReportScope | None = None) -> list[GpuJob]:
    tasks = task_count_expression()
    ended = (_jobs.c.ended_at >= to_timestamp(period.start)) & (_jobs.c.ended_at < to_timestamp(period.end))
    columns = (_jobs.c.id, _projects.c.department, _jobs.c.project, _jobs.c.user, _jobs.c.gpus, tasks)
    hours = func.sum(_allocated_seconds(period) * tasks * _cards()) / _HOUR
    of_job = select(_idle.c.returned_gpu_hours).where(_idle.c.job_id == _jobs.c.id).scalar_subquery()
    query: _Query = select(*columns, hours, case((ended, func.coalesce(of_job, 0.0)), else_=0.0))
    query = _ran_in(query, period, scope).where(_jobs.c.gpus > 0).group_by(_jobs.c.id)
    return [GpuJob(*row) for row in conn.execute(query)]


def total_gpu_hours(conn: Connection, period: ReportPeriod) -> float:
    """Of all users."""
    hours = func.sum(_allocated_seconds(period) * task_count_expression() * _cards()) / _HOUR
    query: _Query = select(hours)
    return float(conn.execute(_ran_in(query, period, None)).scalar() or 0.0)


def compute_wait_times(
    conn: Connection, period: ReportPeriod, by: str, scope: ReportScope | None = None
) -> dict[str, WaitTimes]:
    """From submission to the first start, of jobs that first started in the period."""
    name = _name(by).label("name")
    wait = func.max(_attempts.c.started_at - _jobs.c.submitted_at, 0.0).label("wait")
    query: _Query = select(name, wait)
    first = _ran_in(query, period, scope).where(
        _attempts.c.number == 1, _attempts.c.started_at >= to_timestamp(period.start)
    )
    waits = first.subquery()
    place = func.row_number().over(partition_by=waits.c.name, order_by=waits.c.wait).label("place")
    count = func.count().over(partition_by=waits.c.name).label("count")
    mean = func.avg(waits.c.wait).over(partition_by=waits.c.name).label("mean")
    placed = select(waits.c.name, waits.c.wait, place, count, mean).subquery()
    twice = placed.c.place * 2 - placed.c.count
    middle = (twice >= 0) & (twice <= 2)  # one value of an odd number, two of an even number
    middles = select(placed.c.name, func.min(placed.c.mean), func.avg(placed.c.wait)).where(middle)
    return {name: WaitTimes(mean, median) for name, mean, median in conn.execute(middles.group_by(placed.c.name))}


def list_report_names(
    conn: Connection, job_ids: Collection[JobId], by: str, scope: ReportScope | None = None
) -> dict[JobId, tuple[str, float]]:
    """Of these jobs, the name of the line of the report that they belong to, and their GPUs per task."""
    found: dict[JobId, tuple[str, float]] = {}
    for batch in query_batches(sorted(job_ids)):
        query: _Query = select(_jobs.c.id, _name(by), _jobs.c.gpus).where(_jobs.c.id.in_(batch))
        rows = conn.execute(_of(scope, _joined(query)).order_by(_attempts.c.number))
        found |= {job_id: (name, gpus) for job_id, name, gpus in rows}
    return found


def find_first_attempt_start(conn: Connection) -> datetime | None:
    """Start of the first attempt."""
    at: float | None = conn.execute(select(func.min(_attempts.c.started_at))).scalar()
    return None if at is None else to_datetime(at)


def _name(by: str) -> ColumnElement[str]:
    if by == "gpu_type":  # of the devices; if unknown, as requested
        return case(
            (_jobs.c.gpus == 0, "none"), else_=func.coalesce(_attempts.c.gpu_type, _jobs.c.gpu_type, "unknown")
        )
    return {"department": _projects.c.department, "project": _jobs.c.project, "user": _jobs.c.user}[by]


def _cards() -> ColumnElement[float]:
    return cards_expression(func.coalesce(_attempts.c.gpu_type, _jobs.c.gpu_type))


def _ran_in(query: _Query, period: ReportPeriod, scope: ReportScope | None) -> _Query:
    """Attempts that ran at some time of the period."""
    return _of(scope, _joined(query)).where(
        or_(_attempts.c.ended_at > to_timestamp(period.start), _attempts.c.ended_at.is_(None)),
        _attempts.c.started_at < to_timestamp(period.end),
    )


def _joined(query: _Query) -> _Query:
    tables = _attempts.join(_jobs, _jobs.c.id == _attempts.c.job_id)
    return query.select_from(tables.join(_projects, _projects.c.name == _jobs.c.project))


def _of(scope: ReportScope | None, query: _Query) -> _Query:
    if scope is None:
        return query
    return query.where(or_(_jobs.c.user == scope.user, _jobs.c.project.in_(list(scope.projects))))


def _allocated_seconds(period: ReportPeriod) -> ColumnElement[Any]:
    """Within the period. Never negative, also if the clock was set back in between."""
    return _within(period, _attempts.c.started_at)


def _wasted_seconds(period: ReportPeriod) -> ColumnElement[Any]:
    """Since the last checkpoint, if it was saved in this attempt."""
    saved, started = _jobs.c.checkpointed_at, _attempts.c.started_at
    return _within(period, case((saved > started, saved), else_=started))


def _within(period: ReportPeriod, since: Any) -> ColumnElement[Any]:
    until = func.min(func.coalesce(_attempts.c.ended_at, to_timestamp(period.now)), to_timestamp(period.end))
    return func.max(until - func.max(since, to_timestamp(period.start)), 0.0)
