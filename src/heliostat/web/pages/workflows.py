"""Workflows: all of them, and one with its graph, who ran when, and its jobs."""

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
from heliostat.web.workflow_page.charts import (
    WorkflowJobs,
    display_state,
    draw_workflow_gantt,
    draw_workflow_graph,
)

router = APIRouter()
WorkflowId = Annotated[int, Path(ge=1, le=2**53)]
_WORKFLOWS = ("Workflows", "/workflows")
_SIZE = 100
_LOOKS = {"skipped": "cancelled", "refused": "failed"}


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
    older_url: str  # where the older ones are; empty: there are none


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
    counts: tuple[tuple[str, str, str], ...]  # what, how many, the look
    graph_svg: Markup
    gantt_svg: Markup
    jobs: tuple[WorkflowJobRow, ...]
    step: str
    pager: Pager


@router.get("/workflows")
def show_workflows(
    visit: AuthenticatedDep,
    all_users: Annotated[bool, Query(alias="all")] = False,
    before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
) -> Response:
    found = services.list_workflows(visit.context, visit.caller, all_users=all_users, before=before)
    manages = visit.user.is_admin or any(visit.user.may_manage(one.project) for one in visit.user.memberships)
    here = PageUrl("/workflows", {"all": "true"} if all_users else {})
    older = here.with_query(before=found[-1].workflow.id) if len(found) == services.PAGE_SIZE else ""
    view = WorkflowsView(tuple(map(_row, found)), all_users, manages, older)
    return render_page(visit, PageSpec("workflows.html", "Workflows", live_topics=("jobs",)), view)


@router.get("/workflows/{number}")
def show_workflow(
    visit: AuthenticatedDep,
    number: WorkflowId,
    step: Annotated[str, Query(max_length=80)] = "",
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
) -> Response:
    found = services.get_workflow(visit.context, visit.caller, number)
    shown = PageSpec("workflow.html", found.workflow.name, live_topics=("jobs",), breadcrumbs=(_WORKFLOWS,))
    return render_page(visit, shown, _view(visit, found, step, page))


@router.post("/workflows/{number}/retry")
def retry_workflow(visit: AuthenticatedDep, number: WorkflowId, form: FormDep) -> Response:
    read_job = visit.request.app.state.read_job
    job_ids = services.retry_workflow(visit.context, visit.caller, number, read_job)
    return redirect(
        visit, f"/workflows/{number}", f"{formatting.format_count(len(job_ids), 'job')} submitted again."
    )


@router.post("/workflows/{number}/cancel")
def cancel_workflow(visit: AuthenticatedDep, number: WorkflowId, form: FormDep) -> Response:
    """First it asks once more, then it does it."""
    here = f"/workflows/{number}"
    found = services.get_workflow(visit.context, visit.caller, number)
    if form.get("confirmed") == "yes":
        cancelled = services.cancel_workflow(visit.context, visit.caller, number)
        return redirect(visit, here, f"{formatting.format_count(len(cancelled), 'job')} cancelled.")
    view = Confirmation(
        question=f"Cancel the workflow {found.workflow.name}?",
        consequence="All its jobs end; those that run lose what they have not saved. This cannot be undone.",
        action=f"{here}/cancel",
        label="Cancel all of it",
        fields=(("confirmed", "yes"),),
        back=here,
    )
    return render_page(visit, PageSpec("confirmation.html", "Cancel a workflow", breadcrumbs=(_WORKFLOWS,)), view)


def _row(found: WorkflowView) -> WorkflowRow:
    tally = found.tally
    done = tally.completed + tally.forgiven + tally.skipped
    return WorkflowRow(found.workflow, tally.state.value, tally.total, done, tally.failed)


def _view(visit: AuthenticatedRequest, found: WorkflowView, step: str, page: int) -> WorkflowDetailView:
    number, now, tally = found.workflow.id, visit.context.now(), found.tally
    chosen = [pair for pair in found.jobs if not step or pair[0].step == step]
    if not chosen:
        raise NotFound(f"This workflow has no job {step[:60]!a}.", "Go back to the workflow.")
    is_over = not (tally.waiting or tally.active)
    is_mine = found.workflow.user == visit.user.name
    return WorkflowDetailView(
        workflow=found.workflow,
        state=tally.state.value,
        is_terminal=is_over,
        may_retry=is_mine and is_over and bool(tally.failed or tally.cancelled),
        params=", ".join(f"{name}={value}" for name, value in found.workflow.params.items()),
        counts=_counts(found),
        graph_svg=draw_workflow_graph(found, now),
        gantt_svg=draw_workflow_gantt(found, now),
        jobs=_job_rows(found, chosen[(page - 1) * _SIZE : page * _SIZE]),
        step=step,
        pager=build_pager(
            PageUrl(f"/workflows/{number}", {"step": step} if step else {}), page, _SIZE, len(chosen)
        ),
    )


def _counts(found: WorkflowView) -> tuple[tuple[str, str, str], ...]:
    tally = found.tally
    named = (
        ("Waiting", tally.waiting, "pending"),
        ("Running", tally.active, "running"),
        ("Completed", tally.completed, "completed"),
        ("Failed", tally.failed, "failed"),
        ("Failed, but forgiven", tally.forgiven, "timed_out"),
        ("Cancelled", tally.cancelled, "cancelled"),
        ("Skipped", tally.skipped, "cancelled"),
    )
    return tuple((name, formatting.format_number(count), look) for name, count, look in named if count)


def _job_rows(found: WorkflowView, chosen: WorkflowJobs) -> tuple[WorkflowJobRow, ...]:
    rows: list[WorkflowJobRow] = []
    for row, job in chosen:
        state = display_state(row, job)
        outputs = found.outputs.get(job.id, {})
        rows.append(
            WorkflowJobRow(
                id=job.id,
                key=row.key,
                state=state.replace("_", " "),
                display_state=_LOOKS.get(state, state),
                values=", ".join(f"{name}={value}" for name, value in row.values.items()),
                outputs=", ".join(f"{name}={value[:60]}" for name, value in list(outputs.items())[:8]),
                reason=job.reason or "",
                start_count=job.retries + 1,
                started_at=job.started_at,
                ended_at=job.ended_at,
            )
        )
    return tuple(rows)
