"""Page of a job array with its elements."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from heliostat.errors import NotFound
from heliostat.models import TERMINAL_STATES
from heliostat.services.jobs.control import cancel_jobs
from heliostat.services.jobs.listing import JobPage, JobQuery, ListedJob, list_jobs
from heliostat.services.permissions import require_inspectable
from heliostat.web import formatting
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AuthenticatedDep, FormDep
from heliostat.web.view_models import ARRAY_ID_PATH, Confirmation, Pager, PageUrl, build_pager

router = APIRouter()
_SIZE = 100


@dataclass(frozen=True, slots=True)
class ArrayElementRow:
    id: int
    index: int | None
    state: str
    node_or_reason: str
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class ArrayView:
    array_id: int
    name: str
    user: str
    project: str
    concurrency_limit: int | None
    counts: tuple[tuple[str, str], ...]  # state and count
    is_terminal: bool
    rows: tuple[ArrayElementRow, ...]
    pager: Pager


@router.get("/arrays/" + ARRAY_ID_PATH)
def show_array(
    request: AuthenticatedDep, array_id: int, page: Annotated[int, Query(ge=1, le=1_000_000)] = 1
) -> Response:
    query = JobQuery(array_id=array_id, descending=False, page=page, size=_SIZE)
    found = list_jobs(request.context, request.caller, query)
    if not found.items:
        raise NotFound(f"Array {array_id} does not exist.", "See the list of jobs.")
    require_inspectable(request.caller, found.items[0].job)
    shown = PageSpec(
        "job_array.html", f"Array {array_id}", live_topics=("jobs",), breadcrumbs=(("Jobs", "/jobs"),)
    )
    return render_page(request, shown, _view(array_id, found))


@router.post("/arrays/" + ARRAY_ID_PATH + "/cancel")
def cancel_array(request: AuthenticatedDep, form: FormDep, array_id: int) -> Response:
    """Needs a confirmation."""
    url = f"/arrays/{array_id}"
    if form.get("confirmed") == "yes":
        cancelled = cancel_jobs(request.context, request.caller, (), array_id)
        message = (
            f"{formatting.format_count(len(cancelled), 'job')} cancelled."
            if cancelled
            else "All jobs had already ended."
        )
        return redirect(request, url, message)
    view = Confirmation(
        question=f"Cancel array {array_id}?",
        consequence="All elements are cancelled; running ones lose unsaved work. This cannot be undone.",
        action=f"{url}/cancel",
        label="Cancel array",
        fields=(("confirmed", "yes"),),
        back=url,
    )
    breadcrumbs = (("Jobs", "/jobs"), (f"Array {array_id}", url))
    return render_page(request, PageSpec("confirmation.html", "Cancel array", breadcrumbs=breadcrumbs), view)


def _view(array_id: int, found: JobPage) -> ArrayView:
    first = found.items[0].job
    counts = sorted(found.counts.by_state.items(), key=lambda pair: -pair[1])
    return ArrayView(
        array_id=array_id,
        name=first.name,
        user=first.user,
        project=first.project,
        concurrency_limit=first.array_limit,
        counts=tuple((state.value, formatting.format_number(count)) for state, count in counts if count),
        is_terminal=all(state in TERMINAL_STATES for state, count in counts if count),
        rows=tuple(_row(listed) for listed in found.items),
        pager=build_pager(PageUrl(f"/arrays/{array_id}", {}), found.page, _SIZE, found.total),
    )


def _row(listed: ListedJob) -> ArrayElementRow:
    job = listed.job
    nodes = ", ".join(dict.fromkeys(place.node for place in job.task_placements))
    return ArrayElementRow(
        job.id, job.array_index, job.state.value, listed.reason or nodes, job.started_at, job.ended_at
    )
