"""First forecasts of jobs and their actual starts; run times of finished jobs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, case, delete, func, select, update
from sqlalchemy.dialects.sqlite import insert

from heliostat.models import JobId, JobState
from heliostat.store import schema
from heliostat.store.database import Transaction, query_batches
from heliostat.store.timestamps import to_datetime, to_timestamp

_forecasts, _jobs = schema.forecasts, schema.jobs
_TOLERANCE_SECONDS = 60.0  # ranges are shown in minutes
_RUN_STATES = (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT)


@dataclass(frozen=True, slots=True)
class FirstForecast:
    job_id: JobId
    made_at: datetime
    earliest_at: datetime
    latest_at: datetime


@dataclass(frozen=True, slots=True)
class FinishedRun:
    user: str
    project: str
    name: str
    seconds: float
    limit_seconds: float | None
    kind: str


def add_forecasts(tx: Transaction, new: Sequence[FirstForecast]) -> None:
    """The first forecast of each job stays; later ones are ignored."""
    if new:
        tx.conn.execute(insert(_forecasts).on_conflict_do_nothing(), [_row(forecast) for forecast in new])


def record_forecast_outcomes(tx: Transaction, outcome: "ForecastOutcomes") -> None:
    """The first start of each job stays. Forecasts of jobs that never started are removed."""
    job = _forecasts.c.job_id == bindparam("job")
    if outcome.started:
        change = (
            update(_forecasts).where(job, _forecasts.c.started_at.is_(None)).values(started_at=bindparam("at"))
        )
        starts = [{"job": job_id, "at": to_timestamp(at)} for job_id, at in outcome.started.items()]
        tx.conn.execute(change, starts)
    if outcome.never_started:
        tx.conn.execute(delete(_forecasts).where(job), [{"job": job_id} for job_id in outcome.never_started])


def remove_old_forecasts(tx: Transaction, before: datetime) -> None:
    tx.conn.execute(delete(_forecasts).where(_forecasts.c.made_at < to_timestamp(before)))


@dataclass(frozen=True, slots=True)
class ForecastOutcomes:
    """Actual starts of jobs with a forecast."""

    started: Mapping[JobId, datetime]
    never_started: Sequence[JobId]  # they ended without having started
    waiting_count: int  # jobs that have not started yet


def find_unrecorded_outcomes(conn: Connection) -> ForecastOutcomes:
    """Outcomes that are not stored with the forecasts yet."""
    query = (
        select(_forecasts.c.job_id, _jobs.c.started_at)
        .join(_jobs, _jobs.c.id == _forecasts.c.job_id)
        .where(
            _forecasts.c.started_at.is_(None),
            _jobs.c.started_at.is_not(None) | _jobs.c.ended_at.is_not(None),
        )
    )
    starts = {job_id: to_datetime(started) for job_id, started in conn.execute(query)}
    unrecorded = select(func.count()).select_from(_forecasts).where(_forecasts.c.started_at.is_(None))
    return ForecastOutcomes(
        {job_id: at for job_id, at in starts.items() if at is not None},
        [job_id for job_id, at in starts.items() if at is None],
        (conn.execute(unrecorded).scalar() or 0) - len(starts),
    )


def count_accurate_forecasts(conn: Connection, limit: int) -> tuple[int, int]:
    """Of the last started jobs: how many started within the range of their first forecast, and their number."""
    c = _forecasts.c
    within = (c.started_at >= c.earliest_at - _TOLERANCE_SECONDS) & (
        c.started_at <= c.latest_at + _TOLERANCE_SECONDS
    )
    last = (
        select(case((within, 1), else_=0).label("within"))
        .where(c.started_at.is_not(None))
        .order_by(c.started_at.desc())
        .limit(limit)
        .subquery()
    )
    hits, count = conn.execute(select(func.sum(last.c.within), func.count()).select_from(last)).one()
    return hits or 0, count


def list_finished_runs(conn: Connection, since: datetime, limit: int) -> list[FinishedRun]:
    """Run times of the newest jobs that ended after `since`; oldest first."""
    newest = (_jobs.c.ended_at.desc(), _jobs.c.id.desc())
    query = _RUNS.where(_jobs.c.ended_at > to_timestamp(since)).order_by(*newest).limit(limit)
    return [FinishedRun(**row._asdict()) for row in conn.execute(query)][::-1]


def list_finished_runs_of_jobs(conn: Connection, ids: Collection[JobId]) -> list[FinishedRun]:
    """Of these jobs, if they have ended and ran."""
    runs: list[FinishedRun] = []
    for batch in query_batches(list(ids)):
        runs += [FinishedRun(**row._asdict()) for row in conn.execute(_RUNS.where(_jobs.c.id.in_(batch)))]
    return runs


_RUNS = select(
    _jobs.c.user,
    _jobs.c.project,
    _jobs.c.name,
    func.max(_jobs.c.ended_at - _jobs.c.started_at, 0.0).label("seconds"),
    _jobs.c.time_limit_seconds.label("limit_seconds"),
    _jobs.c.kind,
).where(_jobs.c.state.in_([state.value for state in _RUN_STATES]), _jobs.c.started_at.is_not(None))


def _row(forecast: FirstForecast) -> dict[str, object]:
    return {
        "job_id": forecast.job_id,
        "made_at": to_timestamp(forecast.made_at),
        "earliest_at": to_timestamp(forecast.earliest_at),
        "latest_at": to_timestamp(forecast.latest_at),
    }
