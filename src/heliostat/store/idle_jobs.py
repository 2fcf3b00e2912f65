"""Jobs on the idle ladder, and credit for GPUs that were given back early, in the database."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, Row, delete, func, or_, select
from sqlalchemy.dialects.sqlite import insert

from heliostat.models import Job, JobId, JobState
from heliostat.models.fair_use import IdleState, IdleStep
from heliostat.store import schema
from heliostat.store.database import Transaction, query_batches
from heliostat.store.job_rows import JOB_COLUMNS_WITHOUT_SPEC, row_to_job_without_spec
from heliostat.store.timestamps import to_datetime, to_timestamp

_idle, _jobs = schema.idle_jobs, schema.jobs


def list_running_gpu_jobs(conn: Connection) -> list[Job]:
    """Without their specs."""
    is_running = (_jobs.c.ended_at.is_(None), _jobs.c.state == JobState.RUNNING.value, _jobs.c.gpus > 0)
    query = select(*JOB_COLUMNS_WITHOUT_SPEC).where(*is_running)
    return [row_to_job_without_spec(row) for row in conn.execute(query).mappings()]


def find_idle_state(conn: Connection, job_id: JobId) -> IdleState | None:
    return get_idle_states(conn, [job_id]).get(job_id)


def get_idle_states(conn: Connection, ids: Collection[JobId]) -> dict[JobId, IdleState]:
    return {
        row.job_id: _state(row)
        for batch in query_batches(sorted(ids))
        for row in conn.execute(select(_idle).where(_idle.c.job_id.in_(batch)))
    }


def set_idle_state(tx: Transaction, state: IdleState) -> None:
    """Add or replace it."""
    row = {
        "job_id": state.job_id,
        "attempt": state.attempt,
        "step": None if state.step is None else state.step.value,
        "step_at": to_timestamp(state.step_at),
        "idle_since": to_timestamp(state.idle_since),
        "kept_until": to_timestamp(state.kept_until),
        "answers": state.answers,
        "returned_gpu_hours": state.returned_gpu_hours,
    }
    tx.conn.execute(insert(_idle).values(row).on_conflict_do_update(index_elements=["job_id"], set_=row))


def list_ended_idle_jobs(conn: Connection) -> list[JobId]:
    """Without those whose GPUs were given back early: the waste report counts them."""
    query = select(_idle.c.job_id).join(_jobs, _jobs.c.id == _idle.c.job_id)
    return list(
        conn.execute(query.where(_idle.c.returned_gpu_hours == 0, _jobs.c.ended_at.is_not(None))).scalars()
    )


def remove_idle_jobs(tx: Transaction, ids: Collection[JobId]) -> None:
    for batch in query_batches(sorted(ids)):
        tx.conn.execute(delete(_idle).where(_idle.c.job_id.in_(batch)))


def sum_credit(conn: Connection, since: datetime, user: str | None = None) -> dict[tuple[str, str], float]:
    """GPU-hours of credit for jobs that ended since then or are ending, by project and user."""
    query = (
        select(_jobs.c.project, _jobs.c.user, func.sum(_jobs.c.credit_gpu_hours))
        .where(_jobs.c.credit_gpu_hours > 0)
        .where(or_(_jobs.c.ended_at.is_(None), _jobs.c.ended_at > to_timestamp(since)))
        .group_by(_jobs.c.project, _jobs.c.user)
    )
    if user is not None:
        query = query.where(_jobs.c.user == user)
    return {(project, name): hours for project, name, hours in conn.execute(query)}


def _state(row: Row[tuple[object, ...]]) -> IdleState:
    return IdleState(
        row.job_id,
        row.attempt,
        None if row.step is None else IdleStep(row.step),
        to_datetime(row.step_at),
        to_datetime(row.idle_since),
        to_datetime(row.kept_until),
        row.answers,
        row.returned_gpu_hours,
    )
