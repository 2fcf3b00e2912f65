"""Waits and runs of jobs since some time."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Connection, Select, case, func, literal_column, null, or_, select, type_coerce
from sqlalchemy.sql import ColumnElement

from heliostat.models import JobSpan, JobState
from heliostat.store import schema
from heliostat.store.timestamps import to_timestamp
from heliostat.store.usage import task_count_expression

_jobs, _attempts = schema.jobs, schema.attempts


def read_job_spans(conn: Connection, since: datetime, now: datetime) -> Iterator[JobSpan]:
    """Runs that ended after `since` or have not ended, and waits of jobs that have not started again. Without
    imported jobs."""
    queries = (
        _runs(to_timestamp(since)),
        _current_waits(to_timestamp(now)),
        _cancelled_waits(to_timestamp(since)),
    )
    return (JobSpan._make(row) for query in queries for row in conn.execute(query))


def _runs(since: float) -> Select[Any]:
    ended = _attempts.alias("ended")  # reads only the index, so that the rows are then read in storage order
    recent: Select[Any] = select(literal_column("ended.rowid")).where(
        or_(ended.c.ended_at > since, ended.c.ended_at.is_(None))
    )
    times = (_jobs.c.waited_seconds, _attempts.c.started_at, _attempts.c.ended_at)
    gpu_type = func.coalesce(_attempts.c.gpu_type, _jobs.c.gpu_type)
    return (
        _select_spans(gpu_type, *times)
        .select_from(_attempts.join(_jobs, _jobs.c.id == _attempts.c.job_id))
        .where(literal_column("attempts.rowid").in_(recent), _attempts.c.started_at.is_not(None))
    )


def _current_waits(now: float) -> Select[Any]:
    queued_since = func.max(
        func.coalesce(_jobs.c.waits_since, _jobs.c.submitted_at), func.coalesce(_jobs.c.begin_at, 0)
    )
    current = case((_jobs.c.state == JobState.PENDING, func.max(now - queued_since, 0.0)), else_=0.0)
    return _select_spans(_jobs.c.gpu_type, _jobs.c.waited_seconds + current, null(), null()).where(
        _jobs.c.ended_at.is_(None),
        _jobs.c.state.in_((JobState.PENDING, JobState.STARTING)),
        _jobs.c.parents_left == 0,
    )


def _cancelled_waits(since: float) -> Select[Any]:
    return _select_spans(_jobs.c.gpu_type, _jobs.c.waited_seconds, null(), _jobs.c.ended_at).where(
        _jobs.c.state == JobState.CANCELLED, _jobs.c.ended_at > since, _jobs.c.started_at.is_(None)
    )


def _select_spans(
    gpu_type: ColumnElement[Any],
    waited: ColumnElement[Any],
    started: ColumnElement[Any],
    ended: ColumnElement[Any],
) -> Select[Any]:
    """In the order of the fields of JobSpan."""
    tasks = task_count_expression()
    reservation = type_coerce(_jobs.c.placement, JSON)["reservation"].as_string()
    return select(
        _jobs.c.id,
        _jobs.c.project,
        _jobs.c.user,
        _jobs.c.priority_class,
        *(column * tasks for column in (_jobs.c.gpus, _jobs.c.cpus, _jobs.c.memory_mib)),
        gpu_type,
        _jobs.c.array_id,
        _jobs.c.array_limit,
        case((_jobs.c.placement == "{}", False), else_=reservation.is_not(None)),
        _jobs.c.submitted_at,
        waited,
        started,
        ended,
    ).where(_jobs.c.origin.is_(None))
