"""The first page: one's own jobs, one's part of the cluster, announcements, and for newcomers the first steps."""

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
_SHOWN = 8
_MANY = 100  # of one's jobs that run are looked through for sessions
_ADD_JOB = "/jobs/new"


@dataclass(frozen=True, slots=True)
class HomeJobRow:
    id: int
    name: str
    state: str
    project: str
    gpus: float
    gpu_type: str | None
    started_at: datetime | None
    ends_at: datetime | None
    starts_at: datetime | None  # as forecast
    latest_at: datetime | None
    node_or_reason: str  # where it runs, or why it waits


@dataclass(frozen=True, slots=True)
class Allowance:
    """A share or a quota in words, with a bar."""

    title: str
    description: str
    bar: Markup
    value_text: str


@dataclass(frozen=True, slots=True)
class OwnJobs:
    """One's own jobs that are not over: the first of each kind, and how many more there are."""

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
    new_job_url: str  # empty: there is no such page
    first_command: str  # commands for newcomers
    example_command: str
    shares: tuple[Allowance, ...]
    quotas: tuple[Allowance, ...]


@router.get("/")
def show_home(visit: AuthenticatedDep) -> Response:
    return render_page(visit, PageSpec("home.html", "Home", live_topics=("jobs", "nodes", "rules")), _view(visit))


def _view(visit: AuthenticatedRequest) -> HomeView:
    context, caller = visit.context, visit.caller
    there, mine = get_cluster_overview(context), _mine(visit)
    gpus = "--gpus 1 " if there.gpus else ""
    is_part = "x-fragment" in visit.request.headers  # shares and quotas do not follow live
    return HomeView(
        name=visit.user.name,
        server_url=str(visit.request.base_url).rstrip("/"),
        overview=there,
        announcements=tuple(list_active_announcements(context)),
        own_jobs=mine,
        is_new_user=mine.counts.total == 0,
        may_run_jobs=visit.user.unix_user is not None,
        first_command=f"helio run {gpus}--follow -- {'nvidia-smi' if gpus else 'hostname'}",
        example_command=f"helio run {gpus}--time 4h -- python train.py",
        new_job_url=_ADD_JOB if _ADD_JOB in visit.request.app.state.served else "",
        shares=() if is_part else tuple(_share(one) for one in list_own_share_usage(context, caller)),
        quotas=()
        if is_part
        else tuple(_quota(one, visit.user.name) for one in list_own_quota_usage(context, caller)),
    )


def _mine(visit: AuthenticatedRequest) -> OwnJobs:
    """Those that run newest first; those that wait in the order they came."""
    runs = JobQuery(states=ACTIVE_STATES, user=visit.user.name, size=_MANY)
    waits = JobQuery(states=_WAITING, user=visit.user.name, size=_SHOWN, descending=False)
    active, waiting = (list_jobs(visit.context, visit.caller, query) for query in (runs, waits))
    lines = [_line(listed) for listed in active.items if listed.job.kind != "session"]
    return OwnJobs(
        running=tuple(lines[:_SHOWN]),
        waiting=tuple(_line(listed) for listed in waiting.items),
        sessions=tuple(_line(listed) for listed in active.items if listed.job.kind == "session"),
        more_running=max(0, active.total - len(active.items) + len(lines) - _SHOWN),
        more_waiting=max(0, waiting.total - _SHOWN),
        counts=active.counts,
    )


def _line(listed: ListedJob) -> HomeJobRow:
    job, forecast = listed.job, listed.forecast
    name = listed.name or str(job.id)
    places = ", ".join(dict.fromkeys(place.node for place in job.task_placements))
    is_pending = job.state is JobState.PENDING
    return HomeJobRow(
        id=job.id,
        name=name if job.array_index is None else f"{name}[{job.array_index}]",
        state=job.state.value,
        project=job.project,
        gpus=job.resources.gpus * job.placement.tasks,
        gpu_type=job.resources.gpu_type,
        started_at=job.started_at if job.state is JobState.RUNNING else None,
        ends_at=_end(listed),
        starts_at=forecast.likely_at if forecast and is_pending else None,
        latest_at=forecast.latest_at if forecast and is_pending else None,
        node_or_reason=places if job.state in ACTIVE_STATES else listed.reason or "",
    )


def _end(listed: ListedJob) -> datetime | None:
    job = listed.job
    if job.started_at is None or job.time_limit_seconds is None or job.state not in ACTIVE_STATES:
        return None
    return job.started_at + timedelta(seconds=job.time_limit_seconds)


def _share(one: OwnShareUsage) -> Allowance:
    if one.entitled is None:
        said = "You have used nothing here lately."
        return Allowance(one.project, said, svg_plots.draw_bar(0.0, "nothing used lately"), "nothing used lately")
    part = f"{100 * one.entitled:.3g} %"
    figure = f"{one.usage_ratio:.2f} times your share"
    said = f"{part} of the cluster is yours while everybody wants theirs. {_standing(one.usage_ratio)}"
    return Allowance(
        one.project,
        said,
        svg_plots.draw_bar(min(1.0, one.usage_ratio), figure, 1 if one.usage_ratio <= 1 else 2),
        figure,
    )


def _standing(ratio: float) -> str:
    if ratio < 0.9:
        return "You have used less than that lately, which moves your jobs ahead."
    if ratio <= 1.1:
        return "You have used about that lately."
    return "You have used more than that lately, which moves your jobs back; this fades with time."


_LIMITS = {
    "running_gpus": ("GPUs at once", ""),
    "queued_gpus": ("GPUs in the queue", "Running ones count as well."),
    "gpu_hours_per_month": ("GPU-hours this month", "What running jobs may still use counts as well."),
}
_USED_UP = {
    "running_gpus": "More jobs wait until one of these ends.",
    "queued_gpus": "More jobs are refused until one of these ends.",
    "gpu_hours_per_month": "More jobs wait until the next month.",
}


def _quota(one: QuotaUsage, me: str) -> Allowance:
    limit, counts = _LIMITS[one.limit_name]
    title = limit if (one.scope, one.name) == ("user", me) else f"{limit}, {one.scope} {one.name}"
    part = one.used / one.maximum if one.maximum else 1.0
    figure = f"{formatting.format_number(round(one.used, 1))} of {formatting.format_number(one.maximum)}"
    said = f"Used up. {_USED_UP[one.limit_name]}" if part >= 1 else counts
    return Allowance(title, said, svg_plots.draw_bar(part, f"{figure} {limit}", 4 if part >= 1 else 1), figure)
