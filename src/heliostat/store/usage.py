"""What ended attempts have used, also as engines that keep accounts say; and what unfinished jobs ask for."""

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
from heliostat.store.rows import JOB_COLUMNS_WITHOUT_SPEC, row_to_job_without_spec
from heliostat.store.timestamps import to_timestamp

_jobs, _attempts = schema.jobs, schema.attempts
_DAY = 86400

_accounted = schema.attempt_usage
_VALUES = ("elapsed_seconds", "cpu_seconds", "memory_mib", "gpu_seconds", "out_of_memory")


@dataclass(frozen=True, slots=True)
class DailyUsage:
    """Sums over the attempts that agree in everything else."""

    day: date  # on which they ended, in UTC
    user: str
    project: str
    priority_class: str
    gpu_type: str | None  # of the devices they had; for those without, what the job had asked for
    gpu_seconds: float  # 2 GPUs for a minute: 120; of all tasks
    cpu_seconds: float
    memory_mib_seconds: float
    attempts: int


def list_daily_usage(conn: Connection, since: datetime, now: datetime) -> list[DailyUsage]:
    """Of attempts that ended after `since`, counted from then on at the earliest; not of those that still run.

    One that never came to run has used nothing and is left out; so are jobs that ran elsewhere.
    """
    held = _seconds_held(to_timestamp(since), to_timestamp(now)) * task_count_expression()
    day = cast(_attempts.c.ended_at / _DAY, Integer)
    gpu_type = func.coalesce(_attempts.c.gpu_type, _jobs.c.gpu_type)
    groups = (day, _jobs.c.user, _jobs.c.project, _jobs.c.priority_class, gpu_type)
    sums = [func.sum(held * column) for column in (_jobs.c.gpus, _jobs.c.cpus, _jobs.c.memory_mib)]
    query = (
        select(*groups, *sums, func.count())
        .select_from(_attempts.join(_jobs, _jobs.c.id == _attempts.c.job_id))
        .where(_row_number("attempts").in_(_ended_since(since)), _attempts.c.started_at.is_not(None))
        .where(_jobs.c.origin.is_(None))
        .group_by(*groups)
        .order_by(*groups)
    )
    return [_usage(row) for row in conn.execute(query)]


def sum_requested_gpus(conn: Connection) -> dict[tuple[str, str], float]:
    """By user and project: how many GPUs the jobs that are not over want, all tasks together. Those that are alone
    on their nodes are left out: what they keep from others depends on the nodes."""
    query = (
        select(_jobs.c.user, _jobs.c.project, func.sum(_jobs.c.gpus * task_count_expression()))
        .where(_jobs.c.ended_at.is_(None), _jobs.c.gpus > 0, ~_is_exclusive())
        .group_by(_jobs.c.user, _jobs.c.project)
    )
    return {(user, project): gpus for user, project, gpus in conn.execute(query)}


def count_unfinished_by_project(conn: Connection) -> list[tuple[str, JobState, int, float]]:
    """Project, state, how many jobs that are not over, and how many GPUs they ask for, all tasks together.

    Those that wait for another job are not yet among them.
    """
    query = (
        select(_jobs.c.project, _jobs.c.state, func.count(), func.sum(_jobs.c.gpus * task_count_expression()))
        .where(_jobs.c.ended_at.is_(None), _jobs.c.parents_left == 0)
        .group_by(_jobs.c.project, _jobs.c.state)
    )
    return [(project, JobState(state), jobs, gpus) for project, state, jobs, gpus in conn.execute(query)]


def list_unfinished_exclusive_jobs(conn: Connection) -> list[Job]:
    """Those that are, or want to be, alone on their nodes; without their specs."""
    query = select(*JOB_COLUMNS_WITHOUT_SPEC).where(_jobs.c.ended_at.is_(None), _is_exclusive())
    return [row_to_job_without_spec(row) for row in conn.execute(query).mappings()]


def _is_exclusive() -> ColumnElement[bool]:
    alone = type_coerce(_jobs.c.placement, JSON)["exclusive"].as_boolean()
    return and_(_jobs.c.placement != "{}", alone.is_(True))


def _ended_since(since: datetime) -> Select[Any]:
    """By way of the index alone, so that the rows are then read in the order they lie in: twice as quick."""
    ended = _attempts.alias("ended")
    return select(_row_number("ended")).where(ended.c.ended_at > to_timestamp(since))


def _row_number(table: str) -> ColumnElement[int]:
    return literal_column(f"{table}.rowid", Integer)


def _seconds_held(since: float, now: float) -> ColumnElement[Any]:
    """Within the window. The clock may have been set back in between: that is no time, not less than none."""
    begun = func.max(_attempts.c.started_at, since)
    return func.max(func.min(_attempts.c.ended_at, now) - begun, 0.0)


def task_count_expression() -> ColumnElement[Any]:
    """How many it has, of a row of jobs."""
    several = type_coerce(_jobs.c.placement, JSON)["tasks"].as_integer()
    return case((_jobs.c.placement == "{}", literal(1)), else_=several)


def _usage(row: Row[*tuple[Any, ...]]) -> DailyUsage:
    day, user, project, priority_class, gpu_type, gpus, cpus, memory, attempts = row
    on = datetime.fromtimestamp(day * _DAY, UTC).date()
    return DailyUsage(on, user, project, priority_class, gpu_type, gpus, cpus, memory, attempts)


def add_attempt_usage(tx: Transaction, used: Mapping[AttemptId, AttemptUsage]) -> None:
    """Said again, the newest counts."""
    if not used:
        return
    statement = insert(_accounted)
    newest = {name: statement.excluded[name] for name in _VALUES}
    again = statement.on_conflict_do_update(index_elements=["job_id", "number"], set_=newest)
    tx.conn.execute(again, [attempt_usage_to_row(attempt_id, usage) for attempt_id, usage in used.items()])


def attempt_usage_to_row(attempt_id: AttemptId, usage: AttemptUsage) -> dict[str, object]:
    job_id, _, number = attempt_id.partition(".")
    values = {name: getattr(usage, name) for name in _VALUES}
    return {"job_id": int(job_id), "number": int(number), **values}


def list_attempt_usage(conn: Connection, job_id: JobId) -> list[AttemptUsage]:
    """Of each attempt of which it is known, in their order."""
    columns = [_accounted.c[name] for name in _VALUES]
    query = select(*columns).where(_accounted.c.job_id == job_id).order_by(_accounted.c.number)
    return [AttemptUsage(**row._asdict()) for row in conn.execute(query)]
