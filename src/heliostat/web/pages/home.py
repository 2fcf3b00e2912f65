"""Home page: own jobs, share and quota, announcements, and first steps for new users."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from fastapi import APIRouter
from markupsafe import Markup
from starlette.responses import Response

from heliostat.models import ACTIVE_STATES, Announcement, JobState
from heliostat.services.accounts.own_usage import (
    OwnShareUsage,
    QuotaUsage,
    list_own_quota_usage,
    list_own_share_usage,
)
from heliostat.services.announcements import list_active_announcements
from heliostat.services.cluster.overview import ClusterOverview, get_cluster_overview
from heliostat.services.jobs.listing import JobQuery, JobStateCounts, ListedJob, list_jobs
from heliostat.web import formatting, svg_plots
from heliostat.web.rendering import PageSpec, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest

router = APIRouter()
_WAITING = frozenset({JobState.PENDING, JobState.PREEMPTED, JobState.HELD})
_MAX_SHOWN = 8
_MAX_ACTIVE = 100  # active jobs that are searched for sessions
_ADD_JOB = "/jobs/new"


@dataclass(frozen=True, slots=True)
class HomeJobRow:
    id: int
    name: str
    href: str  # page of the job, or of the session
    state: str
    project: str
    gpus: float
    gpu_type: str | None
    started_at: datetime | None
    ends_at: datetime | None
    starts_at: datetime | None  # forecast
    latest_at: datetime | None
    node_or_reason: str  # its node, or why it waits


@dataclass(frozen=True, slots=True)
class Allowance:
    """A share or a quota: description and bar."""

    title: str
    description: str
    bar: Markup
    value_text: str


@dataclass(frozen=True, slots=True)
class OwnJobs:
    """The user's active and waiting jobs: the first of each kind, and the number of others."""

    running: tuple[HomeJobRow, ...]
    waiting: tuple[HomeJobRow, ...]
    sessions: tuple[HomeJobRow, ...]
    more_running: int
    more_waiting: int
    counts: JobStateCounts


@dataclass(frozen=True, slots=True)
class HomeView:
    name: str
    server_url: str
    overview: ClusterOverview
    announcements: tuple[Announcement, ...]
    own_jobs: OwnJobs
    is_new_user: bool
    may_run_jobs: bool
    new_job_url: str  # empty: the page does not exist
    first_command: str  # commands for new users
    example_command: str
    shares: tuple[Allowance, ...]
    quotas: tuple[Allowance, ...]


@router.get("/")
def show_home(request: AuthenticatedDep) -> Response:
    return render_page(
        request, PageSpec("home.html", "Home", live_topics=("jobs", "nodes", "rules")), _view(request)
    )


def _view(request: AuthenticatedRequest) -> HomeView:
    context, caller = request.context, request.caller
    overview, own_jobs = get_cluster_overview(context), _own_jobs(request)
    gpus = "--gpus 1 " if overview.gpus else ""
    is_part = "x-fragment" in request.http.headers  # shares and quotas are not part of live updates
    return HomeView(
        name=request.user.name,
        server_url=str(request.http.base_url).rstrip("/"),
        overview=overview,
        announcements=tuple(list_active_announcements(context)),
        own_jobs=own_jobs,
        is_new_user=own_jobs.counts.total == 0,
        may_run_jobs=request.user.unix_user is not None,
        first_command=f"helio run {gpus}--follow -- {'nvidia-smi' if gpus else 'hostname'}",
        example_command=f"helio run {gpus}--time 4h -- python train.py",
        new_job_url=_ADD_JOB if _ADD_JOB in request.http.app.state.served else "",
        shares=() if is_part else tuple(_share(one) for one in list_own_share_usage(context, caller)),
        quotas=()
        if is_part
        else tuple(_quota(one, request.user.name) for one in list_own_quota_usage(context, caller)),
    )


def _own_jobs(request: AuthenticatedRequest) -> OwnJobs:
    """Running jobs newest first, waiting jobs oldest first."""
    running_query = JobQuery(states=ACTIVE_STATES, user=request.user.name, size=_MAX_ACTIVE)
    waiting_query = JobQuery(states=_WAITING, user=request.user.name, size=_MAX_SHOWN, descending=False)
    active, waiting = (
        list_jobs(request.context, request.caller, query) for query in (running_query, waiting_query)
    )
    running = [_row(listed) for listed in active.items if listed.job.kind != "session"]
    return OwnJobs(
        running=tuple(running[:_MAX_SHOWN]),
        waiting=tuple(_row(listed) for listed in waiting.items),
        sessions=tuple(_row(listed) for listed in active.items if listed.job.kind == "session"),
        more_running=max(0, active.total - len(active.items) + len(running) - _MAX_SHOWN),
        more_waiting=max(0, waiting.total - _MAX_SHOWN),
        counts=active.counts,
    )


def _row(listed: ListedJob) -> HomeJobRow:
    job, forecast = listed.job, listed.forecast
    name = listed.name or str(job.id)
    nodes = ", ".join(dict.fromkeys(place.node for place in job.task_placements))
    is_pending = job.state is JobState.PENDING
    return HomeJobRow(
        id=job.id,
        name=name if job.array_index is None else f"{name}[{job.array_index}]",
        href=f"/sessions/{job.id}" if job.kind == "session" else f"/jobs/{job.id}",
        state=job.state.value,
        project=job.project,
        gpus=job.resources.gpus * job.placement.tasks,
        gpu_type=job.resources.gpu_type,
        started_at=job.started_at if job.state is JobState.RUNNING else None,
        ends_at=_time_limit_end(listed),
        starts_at=forecast.likely_at if forecast and is_pending else None,
        latest_at=forecast.latest_at if forecast and is_pending else None,
        node_or_reason=nodes if job.state in ACTIVE_STATES else listed.reason or "",
    )


def _time_limit_end(listed: ListedJob) -> datetime | None:
    job = listed.job
    if job.started_at is None or job.time_limit_seconds is None or job.state not in ACTIVE_STATES:
        return None
    return job.started_at + timedelta(seconds=job.time_limit_seconds)


def _share(one: OwnShareUsage) -> Allowance:
    if one.entitled is None:
        description = "You have no recent usage here."
        return Allowance(one.project, description, svg_plots.draw_bar(0.0, "no recent usage"), "no recent usage")
    fraction = f"{100 * one.entitled:.3g}%"
    value_text = f"{one.usage_ratio:.2f} times your share"
    entitlement = f"You are entitled to {fraction} of the cluster while all projects are active."
    description = f"{entitlement} {_describe_usage(one.usage_ratio)}"
    return Allowance(
        one.project,
        description,
        svg_plots.draw_bar(min(1.0, one.usage_ratio), value_text, 1 if one.usage_ratio <= 1 else 2),
        value_text,
    )


def _describe_usage(ratio: float) -> str:
    if ratio < 0.9:
        return "Your recent usage is lower, which raises the priority of your jobs."
    if ratio <= 1.1:
        return "Your recent usage is about the same."
    return "Your recent usage is higher, which lowers the priority of your jobs. It decays with time."


_LIMITS = {
    "running_gpus": ("Running GPUs", ""),
    "queued_gpus": ("Queued GPUs", "Includes running GPUs."),
    "gpu_hours_per_month": ("GPU-hours this month", "Includes the remaining time limits of running jobs."),
}
_USED_UP = {
    "running_gpus": "Other jobs wait until one of these ends.",
    "queued_gpus": "New jobs are refused until one of these ends.",
    "gpu_hours_per_month": "Other jobs wait until next month.",
}


def _quota(one: QuotaUsage, user_name: str) -> Allowance:
    label, note = _LIMITS[one.limit_name]
    title = label if (one.scope, one.name) == ("user", user_name) else f"{label}, {one.scope} {one.name}"
    fraction = one.used / one.maximum if one.maximum else 1.0
    value_text = f"{formatting.format_number(round(one.used, 1))} of {formatting.format_number(one.maximum)}"
    description = f"Used up. {_USED_UP[one.limit_name]}" if fraction >= 1 else note
    return Allowance(
        title,
        description,
        svg_plots.draw_bar(fraction, f"{value_text} {label}", 4 if fraction >= 1 else 1),
        value_text,
    )
