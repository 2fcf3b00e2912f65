"""Job page: state, wait reason, log, usage, timeline, details and actions of one job."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from heliostat.errors import HeliostatError, NotFound
from heliostat.models import ACTIVE_STATES, Caller, Job, JobId, JobState
from heliostat.models.nodes import Device
from heliostat.models.schedules import ScheduleOrigin
from heliostat.models.workflows import Metric, WorkflowMembership
from heliostat.services.cluster.stats import job_stats
from heliostat.services.context import Context
from heliostat.services.fair_use.answers import IdleNotice, idle_notice, keep_choices, keep_gpus
from heliostat.services.jobs import control as services
from heliostat.services.jobs.explanation import explain_job
from heliostat.services.jobs.files import has_own_folder
from heliostat.services.jobs.job_history import JobHistory, devices_by_uuid, get_job_history
from heliostat.services.jobs.metrics import get_metrics_of
from heliostat.services.jobs.reruns import get_job_with_provenance
from heliostat.web.grafana import job_dashboard_url
from heliostat.web.job_page.details import (
    JobAction,
    JobDetails,
    RelatedJobs,
    available_actions,
    build_job_details,
    build_related_jobs,
)
from heliostat.web.job_page.log_view import LogQuery, LogView, build_log_view
from heliostat.web.job_page.rerun import RerunView, build_rerun_view
from heliostat.web.job_page.timeline import Timeline, build_timeline
from heliostat.web.job_page.usage import JobUsageView, build_usage_view
from heliostat.web.job_page.wait_explanation import (
    WaitExplanation,
    WhatIfView,
    build_wait_explanation,
    build_what_if_view,
    format_sentence,
    resubmit_url,
)
from heliostat.web.pages.job_files import FileRow, list_result_files
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest, FormDep
from heliostat.web.view_models import JOB_ID_PATH, Confirmation

router = APIRouter()
MAX_QUERY_INTEGER = 2**53
LogOffset = Annotated[int | None, Query(ge=0, le=MAX_QUERY_INTEGER)]
LogStream = Annotated[str, Query(pattern="^(both|stdout|stderr)$")]
AttemptNumber = Annotated[int | None, Query(ge=1, le=MAX_QUERY_INTEGER)]


@dataclass(frozen=True, slots=True)
class JobView:
    job: Job
    title: str
    state: str
    stop_status: str
    status_text: str  # state or reason, as a sentence
    seconds: float | None
    running_since: datetime | None
    ends_at: datetime | None  # by its time limit
    needs_refresh: bool  # the page polls every few seconds
    actions: tuple[JobAction, ...]
    idle: IdleNotice | None
    keep_choices: tuple[str, ...]
    resubmit_url: str  # empty: the page does not exist
    port_page_url: str  # empty: not running, or not the owner
    session_url: str  # empty: not a session of this user
    wait_explanation: WaitExplanation | None
    grafana_url: str  # empty: no dashboard
    what_if_url: str
    timeline: Timeline
    usage: JobUsageView | None
    details: JobDetails
    related_jobs: tuple[RelatedJobs, ...]
    schedule: ScheduleOrigin | None
    workflow_part: WorkflowMembership | None
    rerun: RerunView
    metrics: tuple[Metric, ...]
    has_files: bool
    result_files: tuple[FileRow, ...]  # files in its results folder
    log: LogView | None  # None: not requested
    what_if: WhatIfView | None


@router.get("/jobs/" + JOB_ID_PATH)
def show_job(
    request: AuthenticatedDep,
    job_id: int,
    stream: LogStream = "both",
    attempt: AttemptNumber = None,
    before: LogOffset = None,
    at: LogOffset = None,
    find: Annotated[str, Query(max_length=200)] = "",
    whatif: bool = False,
) -> Response:
    history = get_job_history(request.context, request.caller, job_id)
    query = LogQuery(stream, attempt, before, at, find.strip())
    view = _view(request, history, query, whatif)
    page = PageSpec("job.html", f"Job {job_id}", live_topics=(f"job:{job_id}",), breadcrumbs=(("Jobs", "/jobs"),))
    return render_page(request, page, view)


@router.post("/jobs/" + JOB_ID_PATH + "/do/{verb}")
def perform_job_action(request: AuthenticatedDep, form: FormDep, job_id: int, verb: str) -> Response:
    """Actions that lose work need a confirmation."""
    action = _ACTIONS.get(verb)
    if action is None:
        raise NotFound("The action does not exist.", "Go back and reload the page.")
    if action.question and form.get("confirmed") != "yes":
        return _confirm_action(request, job_id, verb, action)
    action.act(request.context, request.caller, job_id)
    return redirect(request, f"/jobs/{job_id}", action.done)


@router.post("/jobs/" + JOB_ID_PATH + "/keep")
def keep_gpus_of_job(request: AuthenticatedDep, form: FormDep, job_id: int) -> Response:
    """An answer to the idle ladder."""
    until = dict(keep_choices(request.context)).get(form.get("for", ""))
    if until is None:
        raise NotFound("The answer does not exist.", "Go back and reload the page.")
    keep_gpus(request.context, request.caller, job_id, until)
    return redirect(request, f"/jobs/{job_id}", "The job keeps its GPUs.")


@dataclass(frozen=True, slots=True)
class _JobAction:
    act: Callable[[Context, Caller, JobId], Job]
    done: str
    question: str = ""  # empty: no confirmation
    consequence: str = ""
    label: str = ""


def _cancel_immediately(context: Context, caller: Caller, job_id: JobId) -> Job:
    return services.cancel_job(context, caller, job_id, force=True)


_ACTIONS = {
    "hold": _JobAction(services.hold_job, "Job held. It keeps its place in the queue but does not start."),
    "release": _JobAction(services.release_job, "Job released. It waits in the queue."),
    "requeue": _JobAction(
        services.requeue_job,
        "Job is being stopped and requeued.",
        "Requeue job {id}?",
        "It is stopped, loses unsaved work, and starts again later.",
        "Requeue job",
    ),
    "cancel": _JobAction(
        services.cancel_job,
        "Job cancelled.",
        "Cancel job {id}?",
        "A running job is stopped and loses unsaved work. This cannot be undone.",
        "Cancel job",
    ),
    "kill": _JobAction(
        _cancel_immediately,
        "Job killed.",
        "Kill job {id}?",
        "It gets no more time to save its work. This cannot be undone.",
        "Kill job",
    ),
}


def _confirm_action(request: AuthenticatedRequest, job_id: int, verb: str, action: _JobAction) -> Response:
    history = get_job_history(request.context, request.caller, job_id)  # checks the permission
    back = f"/jobs/{job_id}"
    view = Confirmation(
        question=action.question.format(id=job_id),
        consequence=action.consequence,
        action=f"{back}/do/{verb}",
        label=action.label,
        fields=(("confirmed", "yes"),),
        back=back,
        items=(_title(history.job),),
    )
    breadcrumbs = (("Jobs", "/jobs"), (f"Job {job_id}", back))
    return render_page(request, PageSpec("confirmation.html", action.label, breadcrumbs=breadcrumbs), view)


def _view(request: AuthenticatedRequest, history: JobHistory, query: LogQuery, with_what_if: bool) -> JobView:
    job, now = history.job, request.context.now()
    explanation = explain_job(request.context, request.caller, job.id)
    devices = devices_by_uuid(request.context)
    is_full_page = "x-fragment" not in request.http.headers
    may_add = "/jobs/new" in request.http.app.state.served
    return JobView(
        job=job,
        title=_title(job),
        state=job.state.value,
        stop_status=_STOP_LABELS.get(job.stop_requested or "", "") if job.state in ACTIVE_STATES else "",
        status_text=_status_text(job),
        seconds=_seconds(job, now),
        running_since=job.started_at if job.state is JobState.RUNNING else None,
        ends_at=_ends_at(job),
        needs_refresh=not job.is_terminal,
        actions=available_actions(job),
        idle=(idle := idle_notice(request.context, job)),
        keep_choices=_keep_choices(request.context, idle),
        resubmit_url=resubmit_url(job) if may_add else "",
        port_page_url=f"/jobs/{job.id}/port" if _may_open(request, job) else "",
        session_url=f"/sessions/{job.id}" if job.kind == "session" and job.user == request.user.name else "",
        wait_explanation=build_wait_explanation(explanation, now),
        grafana_url=job_dashboard_url(request.context.settings, job),
        what_if_url=f"/jobs/{job.id}?whatif=1#why" if job.state is JobState.PENDING and not with_what_if else "",
        timeline=build_timeline(history, now, query.attempt or job.attempt),
        usage=_usage(request, history, devices),
        details=build_job_details(job, request.user, devices),
        related_jobs=build_related_jobs(job, history.dependency_view, request.user),
        schedule=history.schedule,
        workflow_part=job.part,
        rerun=build_rerun_view(get_job_with_provenance(request.context, request.caller, job.id)),
        metrics=tuple(get_metrics_of(request.context, job).values()),
        has_files=has_own_folder(request.context, job),
        result_files=list_result_files(request, job),
        log=build_log_view(request, job, query) if is_full_page else None,
        what_if=_what_if(request, job)
        if with_what_if and is_full_page and job.state is JobState.PENDING
        else None,
    )


def _keep_choices(context: Context, idle: IdleNotice | None) -> tuple[str, ...]:
    return tuple(label for label, _ in keep_choices(context)) if idle and idle.answers_left else ()


_STOP_LABELS = {
    "cancel": "being stopped",
    "kill": "being killed",
    "requeue": "being requeued",
    "preempt": "being preempted",
    "overtime": "time limit reached",
}


def _status_text(job: Job) -> str:
    """Reason of its state; a pending job has a separate section for that."""
    if job.state is JobState.STARTING and not job.reason:
        return f"Starting on {job.node}."
    return format_sentence(job.reason or "") if job.state is not JobState.PENDING else ""


def _title(job: Job) -> str:
    return job.name if job.array_index is None else f"{job.name}[{job.array_index}]"


def _may_open(request: AuthenticatedRequest, job: Job) -> bool:
    return job.state is JobState.RUNNING and job.user == request.user.name


def _seconds(job: Job, now: datetime) -> float | None:
    if job.started_at is None:
        return None
    return max(0.0, ((job.ended_at or now) - job.started_at).total_seconds())


def _ends_at(job: Job) -> datetime | None:
    if job.state is not JobState.RUNNING or job.started_at is None or job.time_limit_seconds is None:
        return None
    return job.started_at + timedelta(seconds=job.time_limit_seconds)


def _usage(request: AuthenticatedRequest, history: JobHistory, devices: dict[str, Device]) -> JobUsageView | None:
    if not any(attempt.started_at for attempt in history.attempts):
        return None
    return build_usage_view(job_stats(request.context, request.caller, history.job.id))


def _what_if(request: AuthenticatedRequest, job: Job) -> WhatIfView:
    """Takes seconds, and may be refused under load."""
    try:
        explanation = explain_job(request.context, request.caller, job.id, what_if=True)
    except HeliostatError as error:
        return WhatIfView(error=f"{error.message} {error.hint or ''}")
    return build_what_if_view(job, explanation.what_if) if explanation.what_if else WhatIfView()
