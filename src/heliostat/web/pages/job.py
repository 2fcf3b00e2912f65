"""The page of one job: what it does, why it waits, what it prints and uses, and what can be done about it."""

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
from heliostat.models.workflows import WorkflowMembership
from heliostat.services.cluster.stats import job_stats
from heliostat.services.context import Context
from heliostat.services.jobs import control as services
from heliostat.services.jobs.explanation import explain_job
from heliostat.services.jobs.files import has_own_folder
from heliostat.services.jobs.job_history import JobHistory, devices_by_uuid, get_job_history
from heliostat.services.jobs.reruns import get_job_with_provenance
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
    status_text: str  # what it does, in a sentence
    seconds: float | None
    running_since: datetime | None
    ends_at: datetime | None  # by its limit
    needs_refresh: bool  # worth a look every few seconds
    actions: tuple[JobAction, ...]
    resubmit_url: str  # empty: nobody serves that page
    port_page_url: str  # empty: it has no port to open, or not for this person
    wait_explanation: WaitExplanation | None
    what_if_url: str
    timeline: Timeline
    usage: JobUsageView | None
    details: JobDetails
    related_jobs: tuple[RelatedJobs, ...]
    schedule: ScheduleOrigin | None
    workflow_part: WorkflowMembership | None
    rerun: RerunView
    has_files: bool
    result_files: tuple[FileRow, ...]  # what it left for people to fetch
    log: LogView | None  # None: only other parts of the page are wanted
    what_if: WhatIfView | None


@router.get("/jobs/" + JOB_ID_PATH)
def show_job(
    visit: AuthenticatedDep,
    job_id: int,
    stream: LogStream = "both",
    attempt: AttemptNumber = None,
    before: LogOffset = None,
    at: LogOffset = None,
    find: Annotated[str, Query(max_length=200)] = "",
    whatif: bool = False,
) -> Response:
    story = get_job_history(visit.context, visit.caller, job_id)
    query = LogQuery(stream, attempt, before, at, find.strip())
    view = _view(visit, story, query, whatif)
    page = PageSpec("job.html", f"Job {job_id}", live_topics=(f"job:{job_id}",), breadcrumbs=(("Jobs", "/jobs"),))
    return render_page(visit, page, view)


@router.post("/jobs/" + JOB_ID_PATH + "/do/{verb}")
def perform_job_action(visit: AuthenticatedDep, form: FormDep, job_id: int, verb: str) -> Response:
    """What loses work is asked for once more."""
    chosen = _VERBS.get(verb)
    if chosen is None:
        raise NotFound("There is no such button.", "Go back and load the page again.")
    if chosen.question and form.get("confirmed") != "yes":
        return _ask_again(visit, job_id, verb, chosen)
    chosen.act(visit.context, visit.caller, job_id)
    return redirect(visit, f"/jobs/{job_id}", chosen.done)


@dataclass(frozen=True, slots=True)
class _Verb:
    act: Callable[[Context, Caller, JobId], Job]
    done: str
    question: str = ""  # empty: does no harm
    consequence: str = ""
    label: str = ""


def _kill(context: Context, caller: Caller, job_id: JobId) -> Job:
    return services.cancel_job(context, caller, job_id, force=True)


_VERBS = {
    "hold": _Verb(services.hold_job, "Held. It keeps its place but does not start."),
    "release": _Verb(services.release_job, "Released. It waits for its turn."),
    "requeue": _Verb(
        services.requeue_job,
        "It is being stopped and goes back to the queue.",
        "Send job {id} back to the queue?",
        "It is stopped, loses what it has not saved, and starts again when it is its turn.",
        "Send it back",
    ),
    "cancel": _Verb(
        services.cancel_job,
        "Cancelled.",
        "Cancel job {id}?",
        "If it runs, it is stopped and loses what it has not saved. This cannot be undone.",
        "Cancel it",
    ),
    "kill": _Verb(
        _kill,
        "Stopped at once.",
        "Stop job {id} at once?",
        "It gets no more time to save its work. This cannot be undone.",
        "Stop it at once",
    ),
}


def _ask_again(visit: AuthenticatedRequest, job_id: int, verb: str, chosen: _Verb) -> Response:
    story = get_job_history(visit.context, visit.caller, job_id)  # whoever may not, is told so now
    back = f"/jobs/{job_id}"
    view = Confirmation(
        question=chosen.question.format(id=job_id),
        consequence=chosen.consequence,
        action=f"{back}/do/{verb}",
        label=chosen.label,
        fields=(("confirmed", "yes"),),
        back=back,
        items=(_title(story.job),),
    )
    crumbs = (("Jobs", "/jobs"), (f"Job {job_id}", back))
    return render_page(visit, PageSpec("confirmation.html", chosen.label, breadcrumbs=crumbs), view)


def _view(visit: AuthenticatedRequest, story: JobHistory, query: LogQuery, asks: bool) -> JobView:
    job, now = story.job, visit.context.now()
    told = explain_job(visit.context, visit.caller, job.id)
    devices = devices_by_uuid(visit.context)
    is_whole = "x-fragment" not in visit.request.headers
    may_add = "/jobs/new" in visit.request.app.state.served
    return JobView(
        job=job,
        title=_title(job),
        state=job.state.value,
        stop_status=_STOPPING.get(job.stop_requested or "", "") if job.state in ACTIVE_STATES else "",
        status_text=_told(job),
        seconds=_seconds(job, now),
        running_since=job.started_at if job.state is JobState.RUNNING else None,
        ends_at=_ends_at(job),
        needs_refresh=not job.is_terminal,
        actions=available_actions(job),
        resubmit_url=resubmit_url(job) if may_add else "",
        port_page_url=f"/jobs/{job.id}/port" if _may_open(visit, job) else "",
        wait_explanation=build_wait_explanation(told, now),
        what_if_url=f"/jobs/{job.id}?whatif=1#why" if job.state is JobState.PENDING and not asks else "",
        timeline=build_timeline(story, now, query.attempt or job.attempt),
        usage=_usage(visit, story, devices),
        details=build_job_details(job, visit.user, devices),
        related_jobs=build_related_jobs(job, story.dependency_view, visit.user),
        schedule=story.schedule,
        workflow_part=job.part,
        rerun=build_rerun_view(get_job_with_provenance(visit.context, visit.caller, job.id)),
        has_files=has_own_folder(visit.context, job),
        result_files=list_result_files(visit, job),
        log=build_log_view(visit, job, query) if is_whole else None,
        what_if=_what_if(visit, job) if asks and is_whole and job.state is JobState.PENDING else None,
    )


_STOPPING = {
    "cancel": "being stopped",
    "kill": "being stopped at once",
    "requeue": "going back to the queue",
    "preempt": "making room",
    "overtime": "its time is over",
}


def _told(job: Job) -> str:
    """Why it is as it is. That of one that waits is worth a card of its own."""
    if job.state is JobState.STARTING and not job.reason:
        return f"It is being started on {job.node}."
    return format_sentence(job.reason or "") if job.state is not JobState.PENDING else ""


def _title(job: Job) -> str:
    return job.name if job.array_index is None else f"{job.name}[{job.array_index}]"


def _may_open(visit: AuthenticatedRequest, job: Job) -> bool:
    return job.state is JobState.RUNNING and job.user == visit.user.name


def _seconds(job: Job, now: datetime) -> float | None:
    if job.started_at is None:
        return None
    return max(0.0, ((job.ended_at or now) - job.started_at).total_seconds())


def _ends_at(job: Job) -> datetime | None:
    if job.state is not JobState.RUNNING or job.started_at is None or job.time_limit_seconds is None:
        return None
    return job.started_at + timedelta(seconds=job.time_limit_seconds)


def _usage(visit: AuthenticatedRequest, story: JobHistory, devices: dict[str, Device]) -> JobUsageView | None:
    if not any(attempt.started_at for attempt in story.attempts):
        return None
    held = [devices[uuid] for attempt in story.attempts for uuid in attempt.devices if uuid in devices]
    return build_usage_view(job_stats(visit.context, visit.caller, story.job.id), held)


def _what_if(visit: AuthenticatedRequest, job: Job) -> WhatIfView:
    """Takes seconds, and may be refused while many ask."""
    try:
        told = explain_job(visit.context, visit.caller, job.id, what_if=True)
    except HeliostatError as error:
        return WhatIfView(error=f"{error.message} {error.hint or ''}")
    return build_what_if_view(job, told.what_if) if told.what_if else WhatIfView()
