"""Usage of ended attempts, also as reported by engines with accounting; resources of unfinished jobs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Connection,
    Integer,
    Row,
    Select,
    and_,
    case,
    cast,
    func,
    literal,
    literal_column,
    select,
    type_coerce,
)
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.sql import ColumnElement

from heliostat.models import AttemptId, AttemptUsage, Job, JobId, JobState
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.job_rows import JOB_COLUMNS_WITHOUT_SPEC, row_to_job_without_spec
from heliostat.store.timestamps import to_timestamp

_jobs, _attempts = schema.jobs, schema.attempts
_DAY, _HOUR = 86400, 3600.0

_attempt_usage = schema.attempt_usage
_VALUES = ("elapsed_seconds", "cpu_seconds", "memory_mib", "gpu_seconds", "out_of_memory")


@dataclass(frozen=True, slots=True)
class DailyUsage:
    """Sums over attempts with equal day, user, project, class and GPU type."""

    day: date  # of their end, in UTC
    user: str
    project: str
    priority_class: str
    gpu_type: str | None  # of their devices; without devices: as requested by the job
    gpu_seconds: float  # 2 GPUs for a minute: 120; of all tasks
    cpu_seconds: float
    memory_mib_seconds: float
    attempts: int
    credit_gpu_seconds: float = 0.0  # not charged, because idle GPUs were given back early


def list_daily_usage(conn: Connection, since: datetime, now: datetime) -> list[DailyUsage]:
    """Of attempts that ended after `since`; only time after `since` counts. Running attempts are not included.

    Attempts that never ran and imported jobs are not included either.
    """
    allocated = _allocated_seconds(to_timestamp(since), to_timestamp(now)) * task_count_expression()
    day = cast(_attempts.c.ended_at / _DAY, Integer)
    gpu_type = func.coalesce(_attempts.c.gpu_type, _jobs.c.gpu_type)
    groups = (day, _jobs.c.user, _jobs.c.project, _jobs.c.priority_class, gpu_type)
    sums = [func.sum(allocated * column) for column in (_jobs.c.gpus, _jobs.c.cpus, _jobs.c.memory_mib)]
    is_last = _attempts.c.number == _jobs.c.attempt
    credit = func.sum(case((is_last, _jobs.c.credit_gpu_hours), else_=0.0)) * _HOUR
    query = (
        select(*groups, *sums, func.count(), credit)
        .select_from(_attempts.join(_jobs, _jobs.c.id == _attempts.c.job_id))
        .where(_row_number("attempts").in_(_ended_since(since)), _attempts.c.started_at.is_not(None))
        .where(_jobs.c.origin.is_(None))
        .group_by(*groups)
        .order_by(*groups)
    )
    return [_usage(row) for row in conn.execute(query)]


def sum_requested_gpus(conn: Connection) -> dict[tuple[str, str], float]:
    """GPUs of unfinished jobs by user and project, all tasks together. Without exclusive jobs: what they occupy
    depends on the nodes."""
    query = (
        select(_jobs.c.user, _jobs.c.project, func.sum(cards_expression() * task_count_expression()))
        .where(_jobs.c.ended_at.is_(None), _jobs.c.gpus > 0, ~_is_exclusive())
        .group_by(_jobs.c.user, _jobs.c.project)
    )
    return {(user, project): gpus for user, project, gpus in conn.execute(query)}


def count_unfinished_by_project(conn: Connection) -> list[tuple[str, JobState, int, float]]:
    """Project, state, number of unfinished jobs and their GPUs, all tasks together.

    Without jobs that wait for another job.
    """
    query = (
        select(
            _jobs.c.project, _jobs.c.state, func.count(), func.sum(cards_expression() * task_count_expression())
        )
        .where(_jobs.c.ended_at.is_(None), _jobs.c.parents_left == 0)
        .group_by(_jobs.c.project, _jobs.c.state)
    )
    return [(project, JobState(state), jobs, gpus) for project, state, jobs, gpus in conn.execute(query)]


def list_unfinished_exclusive_jobs(conn: Connection) -> list[Job]:
    """Without their specs."""
    query = select(*JOB_COLUMNS_WITHOUT_SPEC).where(_jobs.c.ended_at.is_(None), _is_exclusive())
    return [row_to_job_without_spec(row) for row in conn.execute(query).mappings()]


def _is_exclusive() -> ColumnElement[bool]:
    exclusive = type_coerce(_jobs.c.placement, JSON)["exclusive"].as_boolean()
    return and_(_jobs.c.placement != "{}", exclusive.is_(True))


def _ended_since(since: datetime) -> Select[Any]:
    """Uses only the index, so that the rows are then read in storage order: twice as fast."""
    ended = _attempts.alias("ended")
    return select(_row_number("ended")).where(ended.c.ended_at > to_timestamp(since))


def _row_number(table: str) -> ColumnElement[int]:
    return literal_column(f"{table}.rowid", Integer)


def _allocated_seconds(since: float, now: float) -> ColumnElement[Any]:
    """Within the period. Never negative, also if the clock was set back in between."""
    start = func.max(_attempts.c.started_at, since)
    return func.max(func.min(_attempts.c.ended_at, now) - start, 0.0)


def task_count_expression() -> ColumnElement[Any]:
    """Number of tasks in a row of jobs."""
    tasks = type_coerce(_jobs.c.placement, JSON)["tasks"].as_integer()
    return case((_jobs.c.placement == "{}", literal(1)), else_=tasks)


def cards_expression(gpu_type: ColumnElement[Any] = _jobs.c.gpu_type) -> ColumnElement[Any]:
    """The GPUs of a task of a job: a MIG slice counts as its part of a card."""
    return _jobs.c.gpus * func.card_fraction(gpu_type)


def _usage(row: Row[*tuple[Any, ...]]) -> DailyUsage:
    day, user, project, priority_class, gpu_type, gpus, cpus, memory, attempts, credit = row
    date_ = datetime.fromtimestamp(day * _DAY, UTC).date()
    return DailyUsage(date_, user, project, priority_class, gpu_type, gpus, cpus, memory, attempts, credit)


def add_attempt_usage(tx: Transaction, used: Mapping[AttemptId, AttemptUsage]) -> None:
    """A repeated report replaces the earlier one."""
    if not used:
        return
    statement = insert(_attempt_usage)
    newest = {name: statement.excluded[name] for name in _VALUES}
    replacing = statement.on_conflict_do_update(index_elements=["job_id", "number"], set_=newest)
    tx.conn.execute(replacing, [attempt_usage_to_row(attempt_id, usage) for attempt_id, usage in used.items()])


def attempt_usage_to_row(attempt_id: AttemptId, usage: AttemptUsage) -> dict[str, object]:
    job_id, _, number = attempt_id.partition(".")
    values = {name: getattr(usage, name) for name in _VALUES}
    return {"job_id": int(job_id), "number": int(number), **values}


def list_attempt_usage(conn: Connection, job_id: JobId) -> list[AttemptUsage]:
    """Of each attempt with known usage, in order."""
    columns = [_attempt_usage.c[name] for name in _VALUES]
    query = select(*columns).where(_attempt_usage.c.job_id == job_id).order_by(_attempt_usage.c.number)
    return [AttemptUsage(**row._asdict()) for row in conn.execute(query)]
