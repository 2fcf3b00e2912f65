"""Who used what in a time, how long they waited, and what was for nothing: summed up by the database."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, func, or_, select

from heliostat.models import JobState
from heliostat.store import schema
from heliostat.store.timestamps import to_datetime, to_timestamp
from heliostat.store.usage import task_count_expression

_jobs, _attempts, _projects = schema.jobs, schema.attempts, schema.projects
_HOUR = 3600.0
_FOR_NOTHING = (JobState.FAILED, JobState.LOST, JobState.TIMED_OUT, JobState.PREEMPTED)

_Query = Select[*tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class ReportPeriod:
    """From then to then; what still runs counts until now."""

    start: datetime
    end: datetime
    now: datetime


@dataclass(frozen=True, slots=True)
class ReportScope:
    """Whose jobs count: those of this user and those of these projects."""

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
class WaitTimes:
    """Of the jobs that first started in the time, in seconds."""

    mean: float
    median: float


def sum_usage(
    conn: Connection, span: ReportPeriod, by: str, scope: ReportScope | None = None
) -> list[UsageTotals]:
    """By department, project or user: of all attempts that ran in the time, the part that lies in it."""
    name = _name(by)
    held = _held(span) * task_count_expression()
    was_for_nothing = _attempts.c.state.in_([state.value for state in _FOR_NOTHING])
    wasted = case((was_for_nothing, _lost(span)), else_=0.0) * task_count_expression()
    sums = [func.sum(part * column) / _HOUR for part in (held, wasted) for column in (_jobs.c.gpus, _jobs.c.cpus)]
    query: _Query = select(name, func.count(_jobs.c.id.distinct()), *sums)
    rows = conn.execute(_ran_in(query, span, scope).group_by(name).order_by(name))
    return [
        UsageTotals(who, jobs, gpu, cpu, lost_gpu, lost_cpu) for who, jobs, gpu, cpu, lost_gpu, lost_cpu in rows
    ]


def total_gpu_hours(conn: Connection, span: ReportPeriod) -> float:
    """Of everybody."""
    hours = func.sum(_held(span) * task_count_expression() * _jobs.c.gpus) / _HOUR
    query: _Query = select(hours)
    return float(conn.execute(_ran_in(query, span, None)).scalar() or 0.0)


def compute_wait_times(
    conn: Connection, span: ReportPeriod, by: str, scope: ReportScope | None = None
) -> dict[str, WaitTimes]:
    """From submission to the first start, of jobs that first started in the time."""
    name = _name(by).label("name")
    wait = func.max(_attempts.c.started_at - _jobs.c.submitted_at, 0.0).label("wait")
    query: _Query = select(name, wait)
    first = _ran_in(query, span, scope).where(
        _attempts.c.number == 1, _attempts.c.started_at >= to_timestamp(span.start)
    )
    waits = first.subquery()
    place = func.row_number().over(partition_by=waits.c.name, order_by=waits.c.wait).label("place")
    count = func.count().over(partition_by=waits.c.name).label("count")
    mean = func.avg(waits.c.wait).over(partition_by=waits.c.name).label("mean")
    placed = select(waits.c.name, waits.c.wait, place, count, mean).subquery()
    twice = placed.c.place * 2 - placed.c.count
    middle = (twice >= 0) & (twice <= 2)  # one of an odd number, two of an even one
    middles = select(placed.c.name, func.min(placed.c.mean), func.avg(placed.c.wait)).where(middle)
    return {who: WaitTimes(mean, median) for who, mean, median in conn.execute(middles.group_by(placed.c.name))}


def find_first_attempt_start(conn: Connection) -> datetime | None:
    """When the first attempt of all began."""
    at: float | None = conn.execute(select(func.min(_attempts.c.started_at))).scalar()
    return None if at is None else to_datetime(at)


def _name(by: str) -> ColumnElement[str]:
    return {"department": _projects.c.department, "project": _jobs.c.project, "user": _jobs.c.user}[by]


def _ran_in(query: _Query, span: ReportPeriod, scope: ReportScope | None) -> _Query:
    """Attempts that ran at some time of the span."""
    return _of(scope, _joined(query)).where(
        or_(_attempts.c.ended_at > to_timestamp(span.start), _attempts.c.ended_at.is_(None)),
        _attempts.c.started_at < to_timestamp(span.end),
    )


def _joined(query: _Query) -> _Query:
    tables = _attempts.join(_jobs, _jobs.c.id == _attempts.c.job_id)
    return query.select_from(tables.join(_projects, _projects.c.name == _jobs.c.project))


def _of(scope: ReportScope | None, query: _Query) -> _Query:
    if scope is None:
        return query
    return query.where(or_(_jobs.c.user == scope.user, _jobs.c.project.in_(list(scope.projects))))


def _held(span: ReportPeriod) -> ColumnElement[Any]:
    """Seconds within the span. A clock that was set back in between makes no time, not less than none."""
    return _within(span, _attempts.c.started_at)


def _lost(span: ReportPeriod) -> ColumnElement[Any]:
    """Seconds since the last checkpoint, if it was made in this attempt."""
    saved, began = _jobs.c.checkpointed_at, _attempts.c.started_at
    return _within(span, case((saved > began, saved), else_=began))


def _within(span: ReportPeriod, since: Any) -> ColumnElement[Any]:
    until = func.min(func.coalesce(_attempts.c.ended_at, to_timestamp(span.now)), to_timestamp(span.end))
    return func.max(until - func.max(since, to_timestamp(span.start)), 0.0)
