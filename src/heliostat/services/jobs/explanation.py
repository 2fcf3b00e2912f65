"""Why a job waits, or what else it does, in a sentence; when it will start; what would start earlier."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from heliostat.controller.forecaster import ForecastAccuracy, StartEstimate
from heliostat.models import ACTIVE_STATES, Caller, Job, JobId, JobRequest, JobState
from heliostat.scheduling.explain.explainer import WaitExplanation
from heliostat.scheduling.forecast import Forecast
from heliostat.scheduling.what_if import EarlierStartOption
from heliostat.services.accounts.quotas import check_queued_gpu_quota
from heliostat.services.context import Context
from heliostat.services.jobs.dependencies import link_dependencies
from heliostat.services.jobs.submission import draft_jobs
from heliostat.services.permissions import require_inspectable_job
from heliostat.store.jobs import get_jobs_without_spec

__all__ = [
    "EarlierStartOption",
    "Forecast",
    "ForecastAccuracy",
    "JobExplanation",
    "StartEstimate",
    "explain_job",
    "forecast_request",
]


@dataclass(frozen=True, slots=True)
class JobExplanation:
    """All that can be said about a job; `why` and what follows it only of one that waits in the queue."""

    job: Job
    sentence: str
    wait_explanation: WaitExplanation | None
    jobs_ahead: tuple[Job, ...]  # the first of them
    forecast: Forecast | None
    accuracy: ForecastAccuracy
    what_if: StartEstimate | None = None
    ineligible_reason: str | None = (
        None  # parents, begin, reservation: what a job waits for before it takes its place in line
    )


def explain_job(context: Context, caller: Caller, job_id: JobId, *, what_if: bool = False) -> JobExplanation:
    """For those who may inspect it."""
    job = require_inspectable_job(context, caller, job_id)
    why = context.controller.explain_wait(job_id) if job.state is JobState.PENDING else None
    asked = (
        context.forecaster.estimate_start(job, instead_of=job)
        if what_if and job.state is JobState.PENDING
        else None
    )
    return JobExplanation(
        job=job,
        sentence=_sentence(job, why, context.controller.wait_reason(job)),
        wait_explanation=why,
        jobs_ahead=_ahead(context, why),
        forecast=context.forecaster.forecast_of(job) or (asked.forecast if asked else None),
        accuracy=context.forecaster.accuracy(),
        what_if=asked,
        ineligible_reason=_not_in_line(job, why, context.now()),
    )


def forecast_request(context: Context, caller: Caller, request: JobRequest) -> StartEstimate:
    """When such a job would start, were it submitted now. The same checks, but nothing is stored; of an array, one
    element is looked at."""
    (job,) = draft_jobs(context, caller, [replace(request, array=None, held=False)])
    index = request.array.indexes[0] if request.array else None
    with context.store.read() as conn:
        (job,) = link_dependencies(conn, caller, [request], [[replace(job, array_index=index)]]).jobs
        check_queued_gpu_quota(context, conn, [job])
    return context.forecaster.estimate_start(replace(job, array_index=None))


def _not_in_line(job: Job, why: WaitExplanation | None, now: datetime) -> str | None:
    if job.state is not JobState.PENDING:
        return None
    if job.is_eligible(now):
        return "reservation" if why is None and job.placement.reservation is not None else None
    return "parents" if job.parents_left else "begin"


def _ahead(context: Context, why: WaitExplanation | None) -> tuple[Job, ...]:
    if why is None or not why.first_ahead:
        return ()
    with context.store.read() as conn:
        found = get_jobs_without_spec(conn, why.first_ahead)
    return tuple(found[job_id] for job_id in why.first_ahead if job_id in found)


def _sentence(job: Job, why: WaitExplanation | None, reason: str | None) -> str:
    if job.state is JobState.PENDING:
        return why.sentence if why else reason or "waits for its turn"
    if job.state is JobState.HELD:
        return f"{job.reason or 'is held'}; let it start with: helio release {job.id}"
    if job.stop_requested and job.state in ACTIVE_STATES:
        return f"is being stopped: {job.reason or job.stop_requested}"
    if job.state is JobState.STARTING:
        return f"is being started on {job.node}"
    if job.state is JobState.RUNNING:
        return _running(job) + (f"; {reason}" if reason and reason != job.reason else "")
    return _over(job)


def _running(job: Job) -> str:
    since = f"runs on {job.node}"
    if job.started_at is None:
        return since
    since += f" since {_clock(job.started_at)}"
    if job.time_limit_seconds is None:
        return f"{since}; it has no time limit"
    end = job.started_at + timedelta(seconds=job.time_limit_seconds)
    overtime = ", or later while nobody waits for what it holds" if job.overtime else ""
    return f"{since}; its time is over at {_clock(end)}{overtime}"


def _over(job: Job) -> str:
    state = job.state.value.replace("_", " ")
    at = f" at {_clock(job.ended_at)}" if job.ended_at else ""
    return f"{state}{at}: {job.reason}" if job.reason else f"{state}{at}"


def _clock(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
