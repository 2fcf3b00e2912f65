"""The list of jobs: counted by state, filtered, sorted, live, and many cancelled at once."""

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
"""What is counted on top, each under the mark of its first state."""
STATE_FILTERS = {
    "": None,
    "unfinished": frozenset(JobState) - TERMINAL_STATES,
    "finished": TERMINAL_STATES,
    **STATE_GROUPS,
}
_MOST_AT_ONCE = 1000
_NAMED_AT_MOST = 12
_MOST_OTHERS = 50


@dataclass(frozen=True, slots=True)
class JobRow:
    id: int
    name: str | None  # None: somebody else's
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
    foreign_jobs: tuple[ForeignJob, ...]  # which went to Slurm without us
    more_foreign_jobs: int


@dataclass(frozen=True, slots=True)
class _Asked:
    whose: str
    state: str
    text: str
    sort: str


@router.get("/jobs")
def show_jobs(
    visit: AuthenticatedDep,
    whose: Annotated[str, Query(pattern="^(mine|all)?$")] = "",
    state: FilterText = "",
    project: FilterText = "",
    user: FilterText = "",
    q: FilterText = "",
    sort: FilterText = "",
    page: PageNumber = 1,
) -> Response:
    if state not in STATE_FILTERS:
        raise Invalid(f"There is no state {state[:40]!a}.", "Choose one of the list.", fields={"state": "unknown"})
    asked = _Asked(whose or ("all" if visit.user.is_admin else "mine"), state, q.strip(), sort)
    by, descending = parse_sort(sort, SORT_KEYS)
    query = JobQuery(
        states=STATE_FILTERS[state],
        user=visit.user.name if asked.whose == "mine" else user.strip() or None,
        project=project.strip() or None,
        text=asked.text or None,
        sort=by,
        descending=descending,
        page=page,
    )
    found = list_jobs(visit.context, visit.caller, query)
    return render_page(
        visit, PageSpec("jobs.html", "Jobs", live_topics=("jobs",)), _view(visit, asked, query, found)
    )


@router.post("/jobs/cancel")
def cancel_selected_jobs(visit: AuthenticatedDep, form: FormDep) -> Response:
    """First it asks once more, then it does it."""
    ids, back = _ids(form.get_all("job")), safe_redirect_path(form.get("back", "/jobs"))
    if not ids:
        return redirect(visit, back, "No job was selected.", "note")
    if form.get("confirmed") != "yes":
        return _ask_again(visit, ids, back)
    cancelled = services.cancel_jobs(visit.context, visit.caller, ids)
    over = len(ids) - len(cancelled)
    said = f"{formatting.format_count(len(cancelled), 'job')} cancelled." if cancelled else "Nothing to cancel."
    return redirect(
        visit, back, said + (f" {formatting.format_count(over, 'job')} had ended already." if over else "")
    )


def _ask_again(visit: AuthenticatedRequest, ids: list[int], back: str) -> Response:
    count = formatting.format_count(len(ids), "job")
    more = len(ids) - _NAMED_AT_MOST
    shown = [f"Job {number}" for number in ids[:_NAMED_AT_MOST]] + ([f"and {more} more"] if more > 0 else [])
    view = Confirmation(
        question=f"Cancel {count}?",
        consequence="Those that run are stopped and lose what they have not saved. This cannot be undone.",
        action="/jobs/cancel",
        label=f"Cancel {count}",
        fields=(("confirmed", "yes"), ("back", back), *(("job", str(number)) for number in ids)),
        back=back,
        items=tuple(shown),
    )
    return render_page(visit, PageSpec("confirmation.html", "Cancel jobs", breadcrumbs=(("Jobs", "/jobs"),)), view)


def _ids(texts: tuple[str, ...]) -> list[int]:
    if len(texts) > _MOST_AT_ONCE:
        raise Invalid(f"At most {_MOST_AT_ONCE} jobs at once.", "Cancel them in parts, or use `helio cancel`.")
    if not all(text.isascii() and text.isdecimal() and len(text) < 16 for text in texts):
        raise Invalid("That is not a job's number.", "Load the page again.", fields={"job": "not a number"})
    return list(dict.fromkeys(int(text) for text in texts))


def _view(visit: AuthenticatedRequest, asked: _Asked, query: JobQuery, found: JobPage) -> JobsView:
    here = _address(asked, query)
    now = visit.context.now()
    plain = PageUrl("/jobs", {"whose": asked.whose})
    others = list_foreign_jobs(visit.context, visit.caller) if asked.whose == "all" else ()
    return JobsView(
        whose=asked.whose,
        own_jobs_url=here.with_query(whose="mine", user=None),
        all_jobs_url=here.with_query(whose="all"),
        clear_url=plain.with_query(),
        search_text=asked.text,
        state=asked.state,
        sort_value=asked.sort,
        is_filtered=here.with_query(sort=None) != plain.with_query(),
        query=query,
        counts=_counts(here, asked.state, found),
        state_options=tuple(
            (name, _STATE_WORDS.get(name, formatting.format_state(name))) for name in STATE_FILTERS
        ),
        project_options=_project_options(visit, query.project),
        sort_links=build_sort_links(here, SORT_KEYS, query.sort, query.descending),
        rows=tuple(_row(visit.user, listed, now) for listed in found.items),
        pager=build_pager(here, found.page, query.size, found.total),
        foreign_jobs=others[:_MOST_OTHERS],
        more_foreign_jobs=max(0, len(others) - _MOST_OTHERS),
    )


_STATE_WORDS = {"": "any", "unfinished": "not over", "finished": "over"}


def _address(asked: _Asked, query: JobQuery) -> PageUrl:
    given = {
        "whose": asked.whose,
        "state": asked.state,
        "project": query.project or "",
        "user": query.user or "" if asked.whose == "all" else "",
        "q": asked.text,
        "sort": asked.sort,
    }
    return PageUrl("/jobs", given)


def _counts(here: PageUrl, chosen: str, found: JobPage) -> tuple[StateCount, ...]:
    """A click on the one that is chosen takes it away again."""
    return tuple(
        StateCount(
            label=formatting.format_state(name),
            count=found.counts.count(*states),
            href=here.with_query(state=None if name == chosen else name),
            is_selected=name == chosen,
            icon=name,
        )
        for name, states in STATE_GROUPS.items()
    )


def _project_options(visit: AuthenticatedRequest, chosen: str | None) -> tuple[tuple[str, str], ...]:
    names = {project.name for project in list_projects(visit.context, visit.caller)} | {chosen or ""} - {""}
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
        stop_status=_STOPPING.get(job.stop_requested or "", "") if not job.is_terminal else "",
        user=job.user,
        project=job.project,
        gpus=job.resources.gpus * job.placement.tasks,
        gpu_type=job.resources.gpu_type,
        submitted_at=job.submitted_at,
        seconds=seconds,
        running_since=job.started_at if job.state is JobState.RUNNING else None,
        ended_at=job.ended_at,
        starts_at=listed.forecast.likely_at if listed.forecast and job.state is JobState.PENDING else None,
        node_or_reason=_where(listed),
        may_cancel=listed.inspectable and not job.is_terminal,
    )


_STOPPING = {"cancel": "stopping", "requeue": "going back", "preempt": "making room", "overtime": "time is over"}


def _where(listed: ListedJob) -> str:
    job = listed.job
    if job.state in ACTIVE_STATES or (job.is_terminal and not listed.reason):
        return ", ".join(dict.fromkeys(place.node for place in job.task_placements))
    return listed.reason or ""
