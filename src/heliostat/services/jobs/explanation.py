"""Explanation of a job's state: why it waits, when it starts, and which change would start it earlier."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from heliostat.controller.forecaster import StartEstimate
from heliostat.models import ACTIVE_STATES, Caller, Job, JobId, JobRequest, JobState
from heliostat.scheduling.explain.explainer import WaitExplanation
from heliostat.scheduling.forecast import Forecast
from heliostat.scheduling.forecast_calibration import ForecastAccuracy
from heliostat.scheduling.what_if import EarlierStartOption
from heliostat.services.accounts.quotas import check_queued_gpu_quota
from heliostat.services.context import Context
from heliostat.services.jobs.dependencies import link_dependencies
from heliostat.services.jobs.submission import draft_jobs
from heliostat.services.pause_state import AFTER_RESUME
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
    """State of a job in a sentence; `wait_explanation` and `forecast` only for one that waits in the queue."""

    job: Job
    sentence: str
    wait_explanation: WaitExplanation | None
    jobs_ahead: tuple[Job, ...]  # the first ones
    forecast: Forecast | None
    accuracy: ForecastAccuracy
    what_if: StartEstimate | None = None
    no_forecast_reason: str | None = None  # if Heliostat is paused: when it starts
    ineligible_reason: str | None = None  # parents, begin or reservation: why the job is not in the queue yet


def explain_job(context: Context, caller: Caller, job_id: JobId, *, what_if: bool = False) -> JobExplanation:
    """For users who may inspect the job."""
    job = require_inspectable_job(context, caller, job_id)
    wait = context.controller.explain_wait(job_id) if job.state is JobState.PENDING else None
    estimate = _estimate_start(context, job, instead_of=job) if what_if and job.state is JobState.PENDING else None
    return JobExplanation(
        job=job,
        sentence=_sentence(job, wait, context.controller.wait_reason(job)),
        wait_explanation=wait,
        jobs_ahead=_jobs_ahead(context, wait),
        forecast=context.forecaster.forecast_of(job) or (estimate.forecast if estimate else None),
        accuracy=context.forecaster.accuracy(),
        what_if=estimate,
        no_forecast_reason=_no_forecast_reason(context) if job.state is JobState.PENDING else None,
        ineligible_reason=_ineligible_reason(job, wait, context.now()),
    )


def forecast_request(context: Context, caller: Caller, request: JobRequest) -> StartEstimate:
    """When this job would start if it were submitted now. Makes the same checks, stores nothing. For an array: the
    start of one element."""
    (job,) = draft_jobs(context, caller, [replace(request, array=None, held=False)])
    index = request.array.indexes[0] if request.array else None
    with context.store.read() as conn:
        (job,) = link_dependencies(conn, caller, [request], [[replace(job, array_index=index)]]).jobs
        check_queued_gpu_quota(context, conn, [job])
    return _estimate_start(context, replace(job, array_index=None))


def _estimate_start(context: Context, job: Job, instead_of: Job | None = None) -> StartEstimate:
    if reason := _no_forecast_reason(context):
        return StartEstimate(None, (), no_forecast_reason=reason)
    return context.forecaster.estimate_start(job, instead_of=instead_of)


def _no_forecast_reason(context: Context) -> str | None:
    return AFTER_RESUME if context.pause.current else None


def _ineligible_reason(job: Job, wait: WaitExplanation | None, now: datetime) -> str | None:
    if job.state is not JobState.PENDING:
        return None
    if job.is_eligible(now):
        return "reservation" if wait is None and job.placement.reservation is not None else None
    return "parents" if job.parents_left else "begin_time"


def _jobs_ahead(context: Context, wait: WaitExplanation | None) -> tuple[Job, ...]:
    if wait is None or not wait.first_ahead:
        return ()
    with context.store.read() as conn:
        jobs = get_jobs_without_spec(conn, wait.first_ahead)
    return tuple(jobs[job_id] for job_id in wait.first_ahead if job_id in jobs)


def _sentence(job: Job, wait: WaitExplanation | None, reason: str | None) -> str:
    if job.state is JobState.PENDING:
        return wait.sentence if wait else reason or "waits for jobs with a higher priority"
    if job.state is JobState.HELD:
        return f"{job.reason or 'is held'}; to release it: helio release {job.id}"
    if job.stop_requested and job.state in ACTIVE_STATES:
        return f"is being stopped: {job.reason or job.stop_requested}"
    if job.state is JobState.STARTING:
        return f"is being started on {job.node}"
    if job.state is JobState.RUNNING:
        return _running(job) + (f"; {reason}" if reason and reason != job.reason else "")
    return _ended(job)


def _running(job: Job) -> str:
    since = f"runs on {job.node}"
    if job.started_at is None:
        return since
    since += f" since {_format_time(job.started_at)}"
    if job.time_limit_seconds is None:
        return f"{since}; it has no time limit"
    end = job.started_at + timedelta(seconds=job.time_limit_seconds)
    overtime = ", or later while no job needs its resources" if job.overtime else ""
    return f"{since}; its time limit ends at {_format_time(end)}{overtime}"


def _ended(job: Job) -> str:
    state = job.state.value.replace("_", " ")
    at = f" at {_format_time(job.ended_at)}" if job.ended_at else ""
    return f"{state}{at}: {job.reason}" if job.reason else f"{state}{at}"


def _format_time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
