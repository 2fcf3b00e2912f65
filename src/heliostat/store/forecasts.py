"""First forecasts of jobs and their actual starts; run times of finished jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, delete, func, select, update
from sqlalchemy.dialects.sqlite import insert

from heliostat.models import Job, JobId, JobState
from heliostat.models.forecasts import ForecastRange, PastForecast
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.job_rows import JOB_COLUMNS_WITHOUT_SPEC, row_to_job_without_spec
from heliostat.store.timestamps import to_datetime, to_timestamp

_forecasts, _jobs = schema.forecasts, schema.jobs
_RUN_STATES = (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT)


@dataclass(frozen=True, slots=True)
class FinishedRun:
    user: str
    project: str
    name: str
    seconds: float
    limit_seconds: float | None
    kind: str


def add_forecasts(tx: Transaction, engine_name: str, new: Mapping[JobId, PastForecast]) -> None:
    """The first forecast of each job stays; later ones are ignored."""
    if new:
        rows = [{"job_id": job_id, "engine": engine_name, **_row(forecast)} for job_id, forecast in new.items()]
        tx.conn.execute(insert(_forecasts).on_conflict_do_nothing(), rows)


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
    return ForecastOutcomes(
        {job_id: at for job_id, at in starts.items() if at is not None},
        [job_id for job_id, at in starts.items() if at is None],
    )


def list_past_forecasts(conn: Connection, engine_name: str, limit: int) -> list[PastForecast]:
    """The newest ones, oldest first; also of jobs that still wait."""
    c = _forecasts.c
    query = select(_forecasts).where(c.engine == engine_name).order_by(c.made_at.desc(), c.job_id.desc())
    return [
        PastForecast(
            row.made_at,
            ForecastRange(row.computed_earliest_at, row.computed_likely_at, row.computed_latest_at),
            ForecastRange(row.earliest_at, row.likely_at, row.latest_at),
            row.started_at,
        )
        for row in conn.execute(query.limit(limit))
    ][::-1]


def list_submissions(conn: Connection, since: datetime, limit: int) -> list[Job]:
    """The newest jobs submitted after `since` that have left the queue, without specs; oldest first."""
    waits = _jobs.c.state.in_([JobState.PENDING.value, JobState.HELD.value])
    query = select(*JOB_COLUMNS_WITHOUT_SPEC).where(_jobs.c.submitted_at > to_timestamp(since), ~waits)
    rows = conn.execute(query.order_by(_jobs.c.id.desc()).limit(limit)).mappings()
    return [row_to_job_without_spec(row) for row in rows][::-1]


def list_finished_runs(conn: Connection, since: datetime, limit: int) -> list[FinishedRun]:
    """Run times of the newest jobs that ended after `since`; oldest first."""
    newest = (_jobs.c.ended_at.desc(), _jobs.c.id.desc())
    query = _RUNS.where(_jobs.c.ended_at > to_timestamp(since)).order_by(*newest).limit(limit)
    return [FinishedRun(**row._asdict()) for row in conn.execute(query)][::-1]


_RUNS = select(
    _jobs.c.user,
    _jobs.c.project,
    _jobs.c.name,
    func.max(_jobs.c.ended_at - _jobs.c.started_at, 0.0).label("seconds"),
    _jobs.c.time_limit_seconds.label("limit_seconds"),
    _jobs.c.kind,
).where(_jobs.c.state.in_([state.value for state in _RUN_STATES]), _jobs.c.started_at.is_not(None))


def _row(forecast: PastForecast) -> dict[str, object]:
    computed, shown = forecast.computed, forecast.shown
    return {
        "made_at": forecast.made_at,
        "computed_earliest_at": computed.earliest,
        "computed_likely_at": computed.likely,
        "computed_latest_at": computed.latest,
        "earliest_at": shown.earliest,
        "likely_at": shown.likely,
        "latest_at": shown.latest,
    }
