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
from heliostat.web import words
from heliostat.web.faults import safe_next
from heliostat.web.rendering import Page, redirect, render
from heliostat.web.views import Address, Confirmation, Pager, Sort, pager, parse_sort, sorts
from heliostat.web.visits import FormDep, Visit, VisitDep

router = APIRouter()
Text = Annotated[str, Query(max_length=128, pattern=r"^[^\x00]*$")]
PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]

GROUPS: dict[str, frozenset[JobState]] = {
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
SETS = {"": None, "unfinished": frozenset(JobState) - TERMINAL_STATES, "finished": TERMINAL_STATES, **GROUPS}
_MOST_AT_ONCE = 1000
_NAMED_AT_MOST = 12
_MOST_OTHERS = 50


@dataclass(frozen=True, slots=True)
class Row:
    id: int
    name: str | None  # None: somebody else's
    state: str
    stopping: str  # being cancelled, requeued…
    user: str
    project: str
    gpus: float
    gpu_type: str | None
    submitted_at: datetime
    seconds: float | None
    running_since: datetime | None
    ended_at: datetime | None
    starts_at: datetime | None
    where: str  # its node, or why it waits
    may_cancel: bool


@dataclass(frozen=True, slots=True)
class Count:
    label: str
    number: int
    href: str
    current: bool
    mark: str


@dataclass(frozen=True, slots=True)
class JobsView:
    whose: str
    mine: str
    all: str
    clear: str
    text: str
    state: str
    sort_value: str
    is_filtered: bool
    query: JobQuery
    counts: tuple[Count, ...]
    state_options: tuple[tuple[str, str], ...]
    project_options: tuple[tuple[str, str], ...]
    sorts: Mapping[str, Sort]
    rows: tuple[Row, ...]
    pager: Pager
    others: tuple[ForeignJob, ...]  # which went to Slurm without us
    more_others: int


@dataclass(frozen=True, slots=True)
class _Asked:
    whose: str
    state: str
    text: str
    sort: str


@router.get("/jobs")
def show_jobs(
    visit: VisitDep,
    whose: Annotated[str, Query(pattern="^(mine|all)?$")] = "",
    state: Text = "",
    project: Text = "",
    user: Text = "",
    q: Text = "",
    sort: Text = "",
    page: PageNumber = 1,
) -> Response:
    if state not in SETS:
        raise Invalid(f"There is no state {state[:40]!a}.", "Choose one of the list.", fields={"state": "unknown"})
    asked = _Asked(whose or ("all" if visit.user.is_admin else "mine"), state, q.strip(), sort)
    by, descending = parse_sort(sort, SORT_KEYS)
    query = JobQuery(
        states=SETS[state],
        user=visit.user.name if asked.whose == "mine" else user.strip() or None,
        project=project.strip() or None,
        text=asked.text or None,
        sort=by,
        descending=descending,
        page=page,
    )
    found = list_jobs(visit.context, visit.caller, query)
    return render(visit, Page("jobs.html", "Jobs", live=("jobs",)), _view(visit, asked, query, found))


@router.post("/jobs/cancel")
def cancel(visit: VisitDep, form: FormDep) -> Response:
    """First it asks once more, then it does it."""
    ids, back = _ids(form.all("job")), safe_next(form.get("back", "/jobs"))
    if not ids:
        return redirect(visit, back, "No job was selected.", "note")
    if form.get("confirmed") != "yes":
        return _ask_again(visit, ids, back)
    cancelled = services.cancel_jobs(visit.context, visit.caller, ids)
    over = len(ids) - len(cancelled)
    said = f"{words.plural(len(cancelled), 'job')} cancelled." if cancelled else "Nothing to cancel."
    return redirect(visit, back, said + (f" {words.plural(over, 'job')} had ended already." if over else ""))


def _ask_again(visit: Visit, ids: list[int], back: str) -> Response:
    count = words.plural(len(ids), "job")
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
    return render(visit, Page("confirm.html", "Cancel jobs", crumbs=(("Jobs", "/jobs"),)), view)


def _ids(texts: tuple[str, ...]) -> list[int]:
    if len(texts) > _MOST_AT_ONCE:
        raise Invalid(f"At most {_MOST_AT_ONCE} jobs at once.", "Cancel them in parts, or use `helio cancel`.")
    if not all(text.isascii() and text.isdecimal() and len(text) < 16 for text in texts):
        raise Invalid("That is not a job's number.", "Load the page again.", fields={"job": "not a number"})
    return list(dict.fromkeys(int(text) for text in texts))


def _view(visit: Visit, asked: _Asked, query: JobQuery, found: JobPage) -> JobsView:
    here = _address(asked, query)
    now = visit.context.now()
    plain = Address("/jobs", {"whose": asked.whose})
    others = list_foreign_jobs(visit.context, visit.caller) if asked.whose == "all" else ()
    return JobsView(
        whose=asked.whose,
        mine=here.with_(whose="mine", user=None),
        all=here.with_(whose="all"),
        clear=plain.with_(),
        text=asked.text,
        state=asked.state,
        sort_value=asked.sort,
        is_filtered=here.with_(sort=None) != plain.with_(),
        query=query,
        counts=_counts(here, asked.state, found),
        state_options=tuple((name, _STATE_WORDS.get(name, words.state_name(name))) for name in SETS),
        project_options=_project_options(visit, query.project),
        sorts=sorts(here, SORT_KEYS, query.sort, query.descending),
        rows=tuple(_row(visit.user, listed, now) for listed in found.items),
        pager=pager(here, found.page, query.size, found.total),
        others=others[:_MOST_OTHERS],
        more_others=max(0, len(others) - _MOST_OTHERS),
    )


_STATE_WORDS = {"": "any", "unfinished": "not over", "finished": "over"}


def _address(asked: _Asked, query: JobQuery) -> Address:
    given = {
        "whose": asked.whose,
        "state": asked.state,
        "project": query.project or "",
        "user": query.user or "" if asked.whose == "all" else "",
        "q": asked.text,
        "sort": asked.sort,
    }
    return Address("/jobs", given)


def _counts(here: Address, chosen: str, found: JobPage) -> tuple[Count, ...]:
    """A click on the one that is chosen takes it away again."""
    return tuple(
        Count(
            label=words.state_name(name),
            number=found.counts.count(*states),
            href=here.with_(state=None if name == chosen else name),
            current=name == chosen,
            mark=name,
        )
        for name, states in GROUPS.items()
    )


def _project_options(visit: Visit, chosen: str | None) -> tuple[tuple[str, str], ...]:
    names = {project.name for project in list_projects(visit.context, visit.caller)} | {chosen or ""} - {""}
    return (("", "any"), *((name, name) for name in sorted(names - {""})))


def _row(user: User, listed: ListedJob, now: datetime) -> Row:
    job = listed.job
    end = job.ended_at or (now if job.state in ACTIVE_STATES else None)
    seconds = (end - job.started_at).total_seconds() if job.started_at and end else None
    name = listed.name if job.array_index is None or listed.name is None else f"{listed.name}[{job.array_index}]"
    return Row(
        id=job.id,
        name=name,
        state=job.state.value,
        stopping=_STOPPING.get(job.stop_requested or "", "") if not job.is_terminal else "",
        user=job.user,
        project=job.project,
        gpus=job.resources.gpus * job.placement.tasks,
        gpu_type=job.resources.gpu_type,
        submitted_at=job.submitted_at,
        seconds=seconds,
        running_since=job.started_at if job.state is JobState.RUNNING else None,
        ended_at=job.ended_at,
        starts_at=listed.forecast.likely_at if listed.forecast and job.state is JobState.PENDING else None,
        where=_where(listed),
        may_cancel=listed.inspectable and not job.is_terminal,
    )


_STOPPING = {"cancel": "stopping", "requeue": "going back", "preempt": "making room", "overtime": "time is over"}


def _where(listed: ListedJob) -> str:
    job = listed.job
    if job.state in ACTIVE_STATES or (job.is_terminal and not listed.reason):
        return ", ".join(dict.fromkeys(place.node for place in job.task_placements))
    return listed.reason or ""
