"""Verbs on workflows. They are jobs of the queue with dependencies: nothing else runs them."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection

from heliostat.errors import Conflict, Forbidden, NotFound
from heliostat.models import Caller, DependencyCondition, Job, JobId, JobRequest, ParentReference
from heliostat.models.workflows import Workflow, WorkflowId, WorkflowJob, WorkflowJobCounts
from heliostat.services.context import Context
from heliostat.services.jobs.control import cancel_in_transaction
from heliostat.services.jobs.submission import SubmissionResult, prepare_submission
from heliostat.services.workflows.plans import (
    ParseJobRequest,
    WorkflowPlan,
    make_workflow_job,
    plan_workflow,
    workflow_membership,
)
from heliostat.store import accounts, transitions, workflow_start_decisions
from heliostat.store import workflows as reported
from heliostat.store import workflows as stored
from heliostat.store.database import Transaction
from heliostat.workflows.expansion import ExpandedJob

PAGE_SIZE = 50


@dataclass(frozen=True, slots=True)
class WorkflowView:
    """A workflow and what has become of it."""

    workflow: Workflow
    tally: WorkflowJobCounts
    jobs: tuple[tuple[WorkflowJob, Job], ...] = ()
    outputs: dict[JobId, dict[str, str]] = field(default_factory=dict)


def submit_workflow(context: Context, caller: Caller, plan: WorkflowPlan, key: str | None = None) -> Workflow:
    """All its jobs or none, in one transaction. With a key, the same request again gives the same workflow."""
    submission = prepare_submission(context, caller, plan.requests, key, plan.idempotency_content)
    now = context.now()

    def change(tx: Transaction) -> Workflow:
        submitted = submission(tx)
        if (known := stored.find_workflow_of_job(tx.conn, submitted.job_ids[0])) is not None:
            return _there(stored.find_workflow(tx.conn, known), known)
        first = submitted.jobs[0]
        expanded = plan.expanded
        params = {name: value for name, value in expanded.params.items() if isinstance(value, str | int | float)}
        made = Workflow(0, expanded.document.name, caller.user.name, first.project, now, params)
        made = replace(made, id=stored.add_workflow(tx, made, plan.document))
        placed = zip(expanded.jobs, submitted.job_ids, strict=True)
        rows = [make_workflow_job(node, made.id, job_id, place) for place, (node, job_id) in enumerate(placed)]
        stored.add_workflow_jobs(tx, rows)
        _let_begin(context, tx, made.id, expanded.jobs, submitted)
        return made

    return context.store.write(change)


def list_workflows(
    context: Context,
    caller: Caller,
    *,
    all_users: bool = False,
    limit: int = PAGE_SIZE,
    before: WorkflowId | None = None,
) -> list[WorkflowView]:
    """One's own, newest first; with `all_users`, also those of projects one manages, for admins all."""
    user = caller.user
    managed = [one.project for one in user.memberships if user.may_manage(one.project)] if all_users else []
    with context.store.read() as conn:
        whose = None if all_users and user.is_admin else user.name
        found = stored.list_workflows(conn, whose, managed, limit, before)
        counts = stored.count_workflow_jobs(conn, [one.id for one in found])
    return [WorkflowView(one, counts[one.id]) for one in found]


def get_workflow(context: Context, caller: Caller, number: WorkflowId) -> WorkflowView:
    """With its jobs and what they handed on. Those one may not see do not exist."""
    with context.store.read() as conn:
        workflow = _visible(conn, caller, number)
        jobs = stored.list_workflow_jobs(conn, number)
        outputs = reported.get_job_outputs(conn, [job.id for _, job in jobs])
        return WorkflowView(workflow, stored.count_workflow_jobs(conn, [number])[number], tuple(jobs), outputs)


def get_workflow_summary(context: Context, caller: Caller, number: WorkflowId) -> WorkflowView:
    """The same without its jobs."""
    with context.store.read() as conn:
        return WorkflowView(_visible(conn, caller, number), stored.count_workflow_jobs(conn, [number])[number])


def get_workflow_document(context: Context, caller: Caller, number: WorkflowId) -> str:
    """As it was given: env may hold secrets, so it is the owner's."""
    with context.store.read() as conn:
        _check_owner(caller, _visible(conn, caller, number))
        return stored.get_workflow_document(conn, number)


def cancel_workflow(context: Context, caller: Caller, number: WorkflowId) -> list[JobId]:
    """All its jobs that are not over, in one transaction. The last first: so nobody is told that it may start."""

    def change(tx: Transaction) -> list[JobId]:
        workflow = _visible(tx.conn, caller, number)
        unfinished = [job for _, job in stored.list_workflow_jobs(tx.conn, number) if not job.is_terminal]
        for job in reversed(unfinished):
            cancel_in_transaction(context, caller, tx, job)
        told = {"name": workflow.name, "jobs": len(unfinished)}
        accounts.add_audit_entry(tx, caller, "workflow.cancel", f"workflow {number}", told, context.now())
        return [job.id for job in unfinished]

    return context.store.write(change)


def retry_workflow(
    context: Context, caller: Caller, number: WorkflowId, read_job: ParseJobRequest, key: str | None = None
) -> list[JobId]:
    """New jobs for those that have not completed, and for all that need these; the others stay as they are."""
    found = get_workflow(context, caller, number)
    _check_owner(caller, found.workflow)
    plan = plan_workflow(
        json.loads(get_workflow_document(context, caller, number)), found.workflow.params, read_job
    )
    again = _to_try_again(found, plan.expanded.jobs)
    known = {row.key: row for row, _ in found.jobs}
    nodes = [node for node in plan.expanded.jobs if node.key in again]
    requests = [
        _once_more(request, again, known)
        for node, request in zip(plan.expanded.jobs, plan.requests, strict=True)
        if node.key in again
    ]
    about = f"retry workflow {number} {sorted(known[name].job_id for name in again)}"
    submission = prepare_submission(context, caller, requests, key, about)

    def change(tx: Transaction) -> list[JobId]:
        submitted = submission(tx)
        if stored.find_workflow_of_job(tx.conn, submitted.job_ids[0]) is not None:
            return list(submitted.job_ids)  # the same request again
        now_known = {row.key: row.job_id for row, _ in stored.list_workflow_jobs(tx.conn, number)}
        if any(now_known[name] != known[name].job_id for name in again):
            raise Conflict("Somebody has just tried this workflow again.", "Look at it: helio workflow show.")
        replaced = [(known[node.key], job_id) for node, job_id in zip(nodes, submitted.job_ids, strict=True)]
        stored.replace_workflow_jobs(tx, number, replaced)
        _let_begin(context, tx, number, nodes, submitted)
        told = {"jobs": len(replaced)}
        accounts.add_audit_entry(tx, caller, "workflow.retry", f"workflow {number}", told, context.now())
        return list(submitted.job_ids)

    return context.store.write(change)


def _let_begin(
    context: Context,
    tx: Transaction,
    number: WorkflowId,
    nodes: Sequence[ExpandedJob],
    submitted: SubmissionResult,
) -> None:
    """They know where they belong; those who wait for nobody are decided over now."""
    for node, job in zip(nodes, submitted.jobs, strict=True):
        transitions.update_job(tx, job.id, {"part": workflow_membership(node, number)})
    keys = {node.key for node in nodes}
    refused: list[transitions.JobTransition] = []
    opening = workflow_start_decisions.WorkflowStartDecider(tx)
    for node, job in zip(nodes, submitted.jobs, strict=True):
        is_plain = not node.needs and node.step.condition is None and not node.is_late
        if is_plain or not keys.isdisjoint(node.needs):
            continue
        verdict = opening.decide_job(job.id)
        if verdict is not None and verdict.outcome is not None:
            refused.append(transitions.cancellation_transition(verdict.reason, job.id, context.now()))
    transitions.apply_transitions(tx, refused)


def _to_try_again(found: WorkflowView, nodes: Sequence[ExpandedJob]) -> set[str]:
    """The keys of those that have not done what they should, and of all that come after these."""
    number = found.workflow.id
    if found.tally.waiting or found.tally.active:
        raise Conflict(f"Workflow {number} is not over.", "Wait for its end, or: helio workflow cancel.")
    again = {row.key for row, job in found.jobs if _has_failed(row, job)}
    if not again:
        raise Conflict(f"No job of workflow {number} has failed.", "Submit it again to run all of it.")
    children: dict[str, list[str]] = {}
    for node in nodes:
        for parent in node.needs:
            children.setdefault(parent, []).append(node.key)
    todo = list(again)
    while todo:
        more = [key for key in children.get(todo.pop(), ()) if key not in again]
        again.update(more)
        todo += more
    return again


def _has_failed(row: WorkflowJob, job: Job) -> bool:
    kind = stored.classify_workflow_job(job.state, row.outcome, goes_on=row.continue_on_failure)
    return kind in ("failed", "cancelled") or (kind == "skipped" and row.is_after_failure)


def _once_more(request: JobRequest, again: Collection[str], known: dict[str, WorkflowJob]) -> JobRequest:
    """Who is not tried again is over, and known by number."""
    after = tuple(
        one
        if one.reference in again
        else ParentReference(str(known[one.reference].job_id), DependencyCondition.WORKFLOW_DECIDES)
        for one in request.after
    )
    return replace(request, after=after)


def _visible(conn: Connection, caller: Caller, number: WorkflowId) -> Workflow:
    found = stored.find_workflow(conn, number)
    may = found is not None and (found.user == caller.user.name or caller.user.may_manage(found.project))
    return _there(found if may else None, number)


def _there(found: Workflow | None, number: WorkflowId) -> Workflow:
    if found is None:
        raise NotFound(f"There is no workflow {number}.", "`helio workflow list` lists yours.")
    return found


def _check_owner(caller: Caller, workflow: Workflow) -> None:
    """It runs with the owner's rights, and its file is theirs."""
    if workflow.user != caller.user.name:
        raise Forbidden(f"Workflow {workflow.id} belongs to {workflow.user}.", "You may cancel it; or ask them.")
