"""List of jobs with counts, filters, sorting and bulk cancel."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from heliostat.errors import Invalid
from heliostat.models import ACTIVE_STATES, TERMINAL_STATES, JobState, User
from heliostat.services.accounts.projects import list_projects
from heliostat.services.cluster.foreign_jobs import ForeignJob, list_foreign_jobs
from heliostat.services.jobs import control as services
from heliostat.services.jobs.listing import SORT_KEYS, JobPage, JobQuery, ListedJob, list_jobs
from heliostat.web import formatting
from heliostat.web.error_pages import safe_redirect_path
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest, FormDep
from heliostat.web.view_models import (
    Confirmation,
    Pager,
    PageUrl,
    SortLink,
    build_pager,
    build_sort_links,
    parse_sort,
)

router = APIRouter()
FilterText = Annotated[str, Query(max_length=128, pattern=r"^[^\x00]*$")]
PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]

STATE_GROUPS: dict[str, frozenset[JobState]] = {
    "running": ACTIVE_STATES,
    "pending": frozenset({JobState.PENDING, JobState.PREEMPTED}),
    "held": frozenset({JobState.HELD}),
    "completed": frozenset({JobState.COMPLETED}),
    "failed": frozenset({JobState.FAILED}),
    "timed_out": frozenset({JobState.TIMED_OUT}),
    "cancelled": frozenset({JobState.CANCELLED}),
    "lost": frozenset({JobState.LOST}),
}
"""Counters above the list."""
STATE_FILTERS = {
    "": None,
    "unfinished": frozenset(JobState) - TERMINAL_STATES,
    "finished": TERMINAL_STATES,
    **STATE_GROUPS,
}
_MAX_AT_ONCE = 1000
_MAX_NAMED = 12
_MAX_OTHERS = 50


@dataclass(frozen=True, slots=True)
class JobRow:
    id: int
    name: str | None  # None: another user's
    state: str
    stop_status: str  # being cancelled, requeued…
    user: str
    project: str
    gpus: float
    gpu_type: str | None
    submitted_at: datetime
    seconds: float | None
    running_since: datetime | None
    ended_at: datetime | None
    starts_at: datetime | None
    node_or_reason: str  # its node, or why it waits
    may_cancel: bool


@dataclass(frozen=True, slots=True)
class StateCount:
    label: str
    count: int
    href: str
    is_selected: bool
    icon: str


@dataclass(frozen=True, slots=True)
class JobsView:
    whose: str
    own_jobs_url: str
    all_jobs_url: str
    clear_url: str
    search_text: str
    state: str
    sort_value: str
    is_filtered: bool
    query: JobQuery
    counts: tuple[StateCount, ...]
    state_options: tuple[tuple[str, str], ...]
    project_options: tuple[tuple[str, str], ...]
    sort_links: Mapping[str, SortLink]
    rows: tuple[JobRow, ...]
    pager: Pager
    foreign_jobs: tuple[ForeignJob, ...]  # submitted directly to Slurm
    more_foreign_jobs: int


@dataclass(frozen=True, slots=True)
class _JobFilters:
    whose: str
    state: str
    text: str
    sort: str


@router.get("/jobs")
def show_jobs(
    request: AuthenticatedDep,
    whose: Annotated[str, Query(pattern="^(mine|all)?$")] = "",
    state: FilterText = "",
    project: FilterText = "",
    user: FilterText = "",
    q: FilterText = "",
    sort: FilterText = "",
    page: PageNumber = 1,
) -> Response:
    if state not in STATE_FILTERS:
        raise Invalid(
            f"Unknown state {state[:40]!a}.", "Choose a state from the list.", fields={"state": "unknown"}
        )
    filters = _JobFilters(whose or ("all" if request.user.is_admin else "mine"), state, q.strip(), sort)
    by, descending = parse_sort(sort, SORT_KEYS)
    query = JobQuery(
        states=STATE_FILTERS[state],
        user=request.user.name if filters.whose == "mine" else user.strip() or None,
        project=project.strip() or None,
        text=filters.text or None,
        sort=by,
        descending=descending,
        page=page,
    )
    found = list_jobs(request.context, request.caller, query)
    return render_page(
        request, PageSpec("jobs.html", "Jobs", live_topics=("jobs",)), _view(request, filters, query, found)
    )


@router.post("/jobs/cancel")
def cancel_selected_jobs(request: AuthenticatedDep, form: FormDep) -> Response:
    """Needs a confirmation."""
    ids, back = _ids(form.get_all("job")), safe_redirect_path(form.get("back", "/jobs"))
    if not ids:
        return redirect(request, back, "No jobs selected.", "note")
    if form.get("confirmed") != "yes":
        return _confirm_cancel(request, ids, back)
    cancelled = services.cancel_jobs(request.context, request.caller, ids)
    already_ended = len(ids) - len(cancelled)
    message = f"{formatting.format_count(len(cancelled), 'job')} cancelled." if cancelled else "No jobs to cancel."
    return redirect(
        request,
        back,
        message
        + (f" {formatting.format_count(already_ended, 'job')} had already ended." if already_ended else ""),
    )


def _confirm_cancel(request: AuthenticatedRequest, ids: list[int], back: str) -> Response:
    count = formatting.format_count(len(ids), "job")
    more = len(ids) - _MAX_NAMED
    shown = [f"Job {number}" for number in ids[:_MAX_NAMED]] + ([f"and {more} more"] if more > 0 else [])
    view = Confirmation(
        question=f"Cancel {count}?",
        consequence="Running jobs are stopped and lose unsaved work. This cannot be undone.",
        action="/jobs/cancel",
        label=f"Cancel {count}",
        fields=(("confirmed", "yes"), ("back", back), *(("job", str(number)) for number in ids)),
        back=back,
        items=tuple(shown),
    )
    return render_page(
        request, PageSpec("confirmation.html", "Cancel jobs", breadcrumbs=(("Jobs", "/jobs"),)), view
    )


def _ids(texts: tuple[str, ...]) -> list[int]:
    if len(texts) > _MAX_AT_ONCE:
        raise Invalid(
            f"At most {_MAX_AT_ONCE} jobs can be cancelled at once.", "Select fewer jobs, or use `helio cancel`."
        )
    if not all(text.isascii() and text.isdecimal() and len(text) < 16 for text in texts):
        raise Invalid("Invalid job ID.", "Reload the page.", fields={"job": "not a number"})
    return list(dict.fromkeys(int(text) for text in texts))


def _view(request: AuthenticatedRequest, filters: _JobFilters, query: JobQuery, found: JobPage) -> JobsView:
    url = _jobs_url(filters, query)
    now = request.context.now()
    unfiltered = PageUrl("/jobs", {"whose": filters.whose})
    foreign_jobs = list_foreign_jobs(request.context, request.caller) if filters.whose == "all" else ()
    return JobsView(
        whose=filters.whose,
        own_jobs_url=url.with_query(whose="mine", user=None),
        all_jobs_url=url.with_query(whose="all"),
        clear_url=unfiltered.with_query(),
        search_text=filters.text,
        state=filters.state,
        sort_value=filters.sort,
        is_filtered=url.with_query(sort=None) != unfiltered.with_query(),
        query=query,
        counts=_counts(url, filters.state, found),
        state_options=tuple(
            (name, _STATE_LABELS.get(name, formatting.format_state(name))) for name in STATE_FILTERS
        ),
        project_options=_project_options(request, query.project),
        sort_links=build_sort_links(url, SORT_KEYS, query.sort, query.descending),
        rows=tuple(_row(request.user, listed, now) for listed in found.items),
        pager=build_pager(url, found.page, query.size, found.total),
        foreign_jobs=foreign_jobs[:_MAX_OTHERS],
        more_foreign_jobs=max(0, len(foreign_jobs) - _MAX_OTHERS),
    )


_STATE_LABELS = {"": "any", "unfinished": "not finished", "finished": "finished"}


def _jobs_url(filters: _JobFilters, query: JobQuery) -> PageUrl:
    query_values = {
        "whose": filters.whose,
        "state": filters.state,
        "project": query.project or "",
        "user": query.user or "" if filters.whose == "all" else "",
        "q": filters.text,
        "sort": filters.sort,
    }
    return PageUrl("/jobs", query_values)


def _counts(url: PageUrl, selected: str, found: JobPage) -> tuple[StateCount, ...]:
    """The link of the selected state clears the filter."""
    return tuple(
        StateCount(
            label=formatting.format_state(name),
            count=found.counts.count(*states),
            href=url.with_query(state=None if name == selected else name),
            is_selected=name == selected,
            icon=name,
        )
        for name, states in STATE_GROUPS.items()
    )


def _project_options(request: AuthenticatedRequest, selected: str | None) -> tuple[tuple[str, str], ...]:
    names = {project.name for project in list_projects(request.context, request.caller)} | {selected or ""} - {""}
    return (("", "any"), *((name, name) for name in sorted(names - {""})))


def _row(user: User, listed: ListedJob, now: datetime) -> JobRow:
    job = listed.job
    end = job.ended_at or (now if job.state in ACTIVE_STATES else None)
    seconds = (end - job.started_at).total_seconds() if job.started_at and end else None
    name = listed.name if job.array_index is None or listed.name is None else f"{listed.name}[{job.array_index}]"
    return JobRow(
        id=job.id,
        name=name,
        state=job.state.value,
        stop_status=_STOP_LABELS.get(job.stop_requested or "", "") if not job.is_terminal else "",
        user=job.user,
        project=job.project,
        gpus=job.resources.gpus * job.placement.tasks,
        gpu_type=job.resources.gpu_type,
        submitted_at=job.submitted_at,
        seconds=seconds,
        running_since=job.started_at if job.state is JobState.RUNNING else None,
        ended_at=job.ended_at,
        starts_at=listed.forecast.likely_at if listed.forecast and job.state is JobState.PENDING else None,
        node_or_reason=_node_or_reason(listed),
        may_cancel=listed.inspectable and not job.is_terminal,
    )


_STOP_LABELS = {
    "cancel": "stopping",
    "requeue": "being requeued",
    "preempt": "being preempted",
    "overtime": "time limit reached",
}


def _node_or_reason(listed: ListedJob) -> str:
    job = listed.job
    if job.state in ACTIVE_STATES or (job.is_terminal and not listed.reason):
        return ", ".join(dict.fromkeys(place.node for place in job.task_placements))
    return listed.reason or ""
