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
from heliostat.web import words
from heliostat.web.rendering import Page, redirect, render
from heliostat.web.views import Address, Confirmation, Pager, pager
from heliostat.web.visits import FormDep, Visit, VisitDep
from heliostat.web.workflow.pictures import Jobs, gantt, graph, look_of

router = APIRouter()
Number = Annotated[int, Path(ge=1, le=2**53)]
_WORKFLOWS = ("Workflows", "/workflows")
_SIZE = 100
_LOOKS = {"skipped": "cancelled", "refused": "failed"}


@dataclass(frozen=True, slots=True)
class Row:
    workflow: Workflow
    state: str
    total: int
    done: int
    failed: int


@dataclass(frozen=True, slots=True)
class ListView:
    rows: tuple[Row, ...]
    everybodys: bool
    may_see_others: bool
    older: str  # where the older ones are; empty: there are none


@dataclass(frozen=True, slots=True)
class JobRow:
    id: int
    key: str
    state: str
    look: str
    values: str
    outputs: str
    reason: str
    tries: int
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class OneView:
    workflow: Workflow
    state: str
    is_over: bool
    may_retry: bool
    params: str
    counts: tuple[tuple[str, str, str], ...]  # what, how many, the look
    graph: Markup
    gantt: Markup
    jobs: tuple[JobRow, ...]
    step: str
    pager: Pager


@router.get("/workflows")
def show_workflows(
    visit: VisitDep,
    everybodys: Annotated[bool, Query(alias="all")] = False,
    before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
) -> Response:
    found = services.list_workflows(visit.context, visit.caller, everybodys=everybodys, before=before)
    manages = visit.user.is_admin or any(visit.user.may_manage(one.project) for one in visit.user.memberships)
    here = Address("/workflows", {"all": "true"} if everybodys else {})
    older = here.with_(before=found[-1].workflow.id) if len(found) == services.PAGE_SIZE else ""
    view = ListView(tuple(map(_row, found)), everybodys, manages, older)
    return render(visit, Page("workflows.html", "Workflows", live=("jobs",)), view)


@router.get("/workflows/{number}")
def show_workflow(
    visit: VisitDep,
    number: Number,
    step: Annotated[str, Query(max_length=80)] = "",
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
) -> Response:
    found = services.get_workflow(visit.context, visit.caller, number)
    shown = Page("workflow.html", found.workflow.name, live=("jobs",), crumbs=(_WORKFLOWS,))
    return render(visit, shown, _view(visit, found, step, page))


@router.post("/workflows/{number}/retry")
def retry_workflow(visit: VisitDep, number: Number, form: FormDep) -> Response:
    read_job = visit.request.app.state.read_job
    job_ids = services.retry_workflow(visit.context, visit.caller, number, read_job)
    return redirect(visit, f"/workflows/{number}", f"{words.plural(len(job_ids), 'job')} submitted again.")


@router.post("/workflows/{number}/cancel")
def cancel_workflow(visit: VisitDep, number: Number, form: FormDep) -> Response:
    """First it asks once more, then it does it."""
    here = f"/workflows/{number}"
    found = services.get_workflow(visit.context, visit.caller, number)
    if form.get("confirmed") == "yes":
        cancelled = services.cancel_workflow(visit.context, visit.caller, number)
        return redirect(visit, here, f"{words.plural(len(cancelled), 'job')} cancelled.")
    view = Confirmation(
        question=f"Cancel the workflow {found.workflow.name}?",
        consequence="All its jobs end; those that run lose what they have not saved. This cannot be undone.",
        action=f"{here}/cancel",
        label="Cancel all of it",
        fields=(("confirmed", "yes"),),
        back=here,
    )
    return render(visit, Page("confirm.html", "Cancel a workflow", crumbs=(_WORKFLOWS,)), view)


def _row(found: WorkflowView) -> Row:
    tally = found.tally
    done = tally.completed + tally.forgiven + tally.skipped
    return Row(found.workflow, tally.state.value, tally.total, done, tally.failed)


def _view(visit: Visit, found: WorkflowView, step: str, page: int) -> OneView:
    number, now, tally = found.workflow.id, visit.context.now(), found.tally
    chosen = [pair for pair in found.jobs if not step or pair[0].step == step]
    if not chosen:
        raise NotFound(f"This workflow has no job {step[:60]!a}.", "Go back to the workflow.")
    is_over = not (tally.waiting or tally.active)
    is_mine = found.workflow.user == visit.user.name
    return OneView(
        workflow=found.workflow,
        state=tally.state.value,
        is_over=is_over,
        may_retry=is_mine and is_over and bool(tally.failed or tally.cancelled),
        params=", ".join(f"{name}={value}" for name, value in found.workflow.params.items()),
        counts=_counts(found),
        graph=graph(found, now),
        gantt=gantt(found, now),
        jobs=_job_rows(found, chosen[(page - 1) * _SIZE : page * _SIZE]),
        step=step,
        pager=pager(Address(f"/workflows/{number}", {"step": step} if step else {}), page, _SIZE, len(chosen)),
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
    return tuple((name, words.number(count), look) for name, count, look in named if count)


def _job_rows(found: WorkflowView, chosen: Jobs) -> tuple[JobRow, ...]:
    rows: list[JobRow] = []
    for row, job in chosen:
        state = look_of(row, job)
        outputs = found.outputs.get(job.id, {})
        rows.append(
            JobRow(
                id=job.id,
                key=row.key,
                state=state.replace("_", " "),
                look=_LOOKS.get(state, state),
                values=", ".join(f"{name}={value}" for name, value in row.values.items()),
                outputs=", ".join(f"{name}={value[:60]}" for name, value in list(outputs.items())[:8]),
                reason=job.reason or "",
                tries=job.retries + 1,
                started_at=job.started_at,
                ended_at=job.ended_at,
            )
        )
    return tuple(rows)
