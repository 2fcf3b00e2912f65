"""Pages of workflows: the list, and one workflow with dependency graph, timeline and jobs."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from markupsafe import Markup
from starlette.responses import Response

from heliostat.errors import NotFound
from heliostat.models.workflows import Workflow
from heliostat.services.workflows import lifecycle as services
from heliostat.services.workflows.lifecycle import WorkflowView
from heliostat.web import formatting
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest, FormDep
from heliostat.web.view_models import Confirmation, Pager, PageUrl, build_pager
from heliostat.web.workflow_page.graph_and_timeline import (
    WorkflowJobs,
    display_state,
    draw_workflow_gantt,
    draw_workflow_graph,
)

router = APIRouter()
WorkflowId = Annotated[int, Path(ge=1, le=2**53)]
_WORKFLOWS = ("Workflows", "/workflows")
_SIZE = 100
_DISPLAY_STATES = {"skipped": "cancelled", "refused": "failed"}


@dataclass(frozen=True, slots=True)
class WorkflowRow:
    workflow: Workflow
    state: str
    total: int
    done: int
    failed: int


@dataclass(frozen=True, slots=True)
class WorkflowsView:
    rows: tuple[WorkflowRow, ...]
    shows_all_users: bool
    may_show_all_users: bool
    older_url: str  # empty: no older workflows


@dataclass(frozen=True, slots=True)
class WorkflowJobRow:
    id: int
    key: str
    state: str
    display_state: str
    values: str
    outputs: str
    reason: str
    start_count: int
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkflowDetailView:
    workflow: Workflow
    state: str
    is_terminal: bool
    may_retry: bool
    params: str
    counts: tuple[tuple[str, str, str], ...]  # label, count, icon
    graph_svg: Markup
    gantt_svg: Markup
    jobs: tuple[WorkflowJobRow, ...]
    step: str
    pager: Pager


@router.get("/workflows")
def show_workflows(
    request: AuthenticatedDep,
    all_users: Annotated[bool, Query(alias="all")] = False,
    before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
) -> Response:
    found = services.list_workflows(request.context, request.caller, all_users=all_users, before=before)
    manages = request.user.is_admin or any(
        request.user.may_manage(one.project) for one in request.user.memberships
    )
    url = PageUrl("/workflows", {"all": "true"} if all_users else {})
    older_url = url.with_query(before=found[-1].workflow.id) if len(found) == services.PAGE_SIZE else ""
    view = WorkflowsView(tuple(map(_row, found)), all_users, manages, older_url)
    return render_page(request, PageSpec("workflows.html", "Workflows", live_topics=("jobs",)), view)


@router.get("/workflows/{number}")
def show_workflow(
    request: AuthenticatedDep,
    number: WorkflowId,
    step: Annotated[str, Query(max_length=80)] = "",
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
) -> Response:
    found = services.get_workflow(request.context, request.caller, number)
    shown = PageSpec("workflow.html", found.workflow.name, live_topics=("jobs",), breadcrumbs=(_WORKFLOWS,))
    return render_page(request, shown, _view(request, found, step, page))


@router.post("/workflows/{number}/retry")
def retry_workflow(request: AuthenticatedDep, number: WorkflowId, form: FormDep) -> Response:
    read_job = request.http.app.state.read_job
    job_ids = services.retry_workflow(request.context, request.caller, number, read_job)
    return redirect(
        request, f"/workflows/{number}", f"{formatting.format_count(len(job_ids), 'job')} submitted again."
    )


@router.post("/workflows/{number}/cancel")
def cancel_workflow(request: AuthenticatedDep, number: WorkflowId, form: FormDep) -> Response:
    """Needs a confirmation."""
    url = f"/workflows/{number}"
    found = services.get_workflow(request.context, request.caller, number)
    if form.get("confirmed") == "yes":
        cancelled = services.cancel_workflow(request.context, request.caller, number)
        return redirect(request, url, f"{formatting.format_count(len(cancelled), 'job')} cancelled.")
    view = Confirmation(
        question=f"Cancel workflow {found.workflow.name}?",
        consequence="All its jobs are cancelled; running jobs lose unsaved work. This cannot be undone.",
        action=f"{url}/cancel",
        label="Cancel workflow",
        fields=(("confirmed", "yes"),),
        back=url,
    )
    return render_page(request, PageSpec("confirmation.html", "Cancel workflow", breadcrumbs=(_WORKFLOWS,)), view)


def _row(found: WorkflowView) -> WorkflowRow:
    counts = found.tally
    done = counts.completed + counts.forgiven + counts.skipped
    return WorkflowRow(found.workflow, counts.state.value, counts.total, done, counts.failed)


def _view(request: AuthenticatedRequest, found: WorkflowView, step: str, page: int) -> WorkflowDetailView:
    number, now, counts = found.workflow.id, request.context.now(), found.tally
    selected = [pair for pair in found.jobs if not step or pair[0].step == step]
    if not selected:
        raise NotFound(f"This workflow has no job {step[:60]!a}.", "Go back to the workflow.")
    is_terminal = not (counts.waiting or counts.active)
    is_mine = found.workflow.user == request.user.name
    return WorkflowDetailView(
        workflow=found.workflow,
        state=counts.state.value,
        is_terminal=is_terminal,
        may_retry=is_mine and is_terminal and bool(counts.failed or counts.cancelled),
        params=", ".join(f"{name}={value}" for name, value in found.workflow.params.items()),
        counts=_counts(found),
        graph_svg=draw_workflow_graph(found, now),
        gantt_svg=draw_workflow_gantt(found, now),
        jobs=_job_rows(found, selected[(page - 1) * _SIZE : page * _SIZE]),
        step=step,
        pager=build_pager(
            PageUrl(f"/workflows/{number}", {"step": step} if step else {}), page, _SIZE, len(selected)
        ),
    )


def _counts(found: WorkflowView) -> tuple[tuple[str, str, str], ...]:
    counts = found.tally
    labelled = (
        ("Waiting", counts.waiting, "pending"),
        ("Running", counts.active, "running"),
        ("Completed", counts.completed, "completed"),
        ("Failed", counts.failed, "failed"),
        ("Failed, ignored", counts.forgiven, "timed_out"),
        ("Cancelled", counts.cancelled, "cancelled"),
        ("Skipped", counts.skipped, "cancelled"),
    )
    return tuple((name, formatting.format_number(count), icon) for name, count, icon in labelled if count)


def _job_rows(found: WorkflowView, selected: WorkflowJobs) -> tuple[WorkflowJobRow, ...]:
    rows: list[WorkflowJobRow] = []
    for row, job in selected:
        state = display_state(row, job)
        outputs = found.outputs.get(job.id, {})
        rows.append(
            WorkflowJobRow(
                id=job.id,
                key=row.key,
                state=state.replace("_", " "),
                display_state=_DISPLAY_STATES.get(state, state),
                values=", ".join(f"{name}={value}" for name, value in row.values.items()),
                outputs=", ".join(f"{name}={value[:60]}" for name, value in list(outputs.items())[:8]),
                reason=job.reason or "",
                start_count=job.attempt,
                started_at=job.started_at,
                ended_at=job.ended_at,
            )
        )
    return tuple(rows)
