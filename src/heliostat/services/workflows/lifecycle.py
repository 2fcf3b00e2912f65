"""Workflows: submit, list, show, cancel and retry. A workflow is a set of queued jobs with dependencies."""

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
from heliostat.store import accounts, job_writes, workflow_start_decisions
from heliostat.store import workflows as reported
from heliostat.store import workflows as stored
from heliostat.store.database import Transaction
from heliostat.workflows.expansion import ExpandedJob

PAGE_SIZE = 50


@dataclass(frozen=True, slots=True)
class WorkflowView:
    """A workflow with the states, jobs and outputs of its jobs."""

    workflow: Workflow
    tally: WorkflowJobCounts
    jobs: tuple[tuple[WorkflowJob, Job], ...] = ()
    outputs: dict[JobId, dict[str, str]] = field(default_factory=dict)


def submit_workflow(context: Context, caller: Caller, plan: WorkflowPlan, key: str | None = None) -> Workflow:
    """Submits all its jobs or none, in one transaction. With a key, a repeated request returns the same
    workflow."""
    submission = prepare_submission(context, caller, plan.requests, key, plan.idempotency_content)
    now = context.now()

    def change(tx: Transaction) -> Workflow:
        submitted = submission(tx)
        if (known := stored.find_workflow_of_job(tx.conn, submitted.job_ids[0])) is not None:
            return _require_found(stored.find_workflow(tx.conn, known), known)
        first = submitted.jobs[0]
        expanded = plan.expanded
        params = {name: value for name, value in expanded.params.items() if isinstance(value, str | int | float)}
        created = Workflow(0, expanded.document.name, caller.user.name, first.project, now, params)
        created = replace(created, id=stored.add_workflow(tx, created, plan.document))
        pairs = zip(expanded.jobs, submitted.job_ids, strict=True)
        rows = [make_workflow_job(node, created.id, job_id, index) for index, (node, job_id) in enumerate(pairs)]
        stored.add_workflow_jobs(tx, rows)
        _decide_first_jobs(context, tx, created.id, expanded.jobs, submitted)
        return created

    return context.store.write(change)


def list_workflows(
    context: Context,
    caller: Caller,
    *,
    all_users: bool = False,
    limit: int = PAGE_SIZE,
    before: WorkflowId | None = None,
) -> list[WorkflowView]:
    """The caller's own, newest first; with `all_users`, also those of projects the caller manages, for admins
    all."""
    user = caller.user
    managed = [m.project for m in user.memberships if user.may_manage(m.project)] if all_users else []
    with context.store.read() as conn:
        owner = None if all_users and user.is_admin else user.name
        workflows = stored.list_workflows(conn, owner, managed, limit, before)
        counts = stored.count_workflow_jobs(conn, [workflow.id for workflow in workflows])
    return [WorkflowView(workflow, counts[workflow.id]) for workflow in workflows]


def get_workflow(context: Context, caller: Caller, number: WorkflowId) -> WorkflowView:
    """With its jobs and their outputs. Raises NotFound if the caller may not see it."""
    with context.store.read() as conn:
        workflow = _visible(conn, caller, number)
        jobs = stored.list_workflow_jobs(conn, number)
        outputs = reported.get_job_outputs(conn, [job.id for _, job in jobs])
        return WorkflowView(workflow, stored.count_workflow_jobs(conn, [number])[number], tuple(jobs), outputs)


def get_workflow_summary(context: Context, caller: Caller, number: WorkflowId) -> WorkflowView:
    """Like `get_workflow`, without its jobs."""
    with context.store.read() as conn:
        return WorkflowView(_visible(conn, caller, number), stored.count_workflow_jobs(conn, [number])[number])


def get_workflow_document(context: Context, caller: Caller, number: WorkflowId) -> str:
    """The submitted document. For its owner only, because env may contain secrets."""
    with context.store.read() as conn:
        _check_owner(caller, _visible(conn, caller, number))
        return stored.get_workflow_document(conn, number)


def cancel_workflow(context: Context, caller: Caller, number: WorkflowId) -> list[JobId]:
    """Cancel its unfinished jobs in one transaction. The last first, so that no cancelled parent starts a
    child."""

    def change(tx: Transaction) -> list[JobId]:
        workflow = _visible(tx.conn, caller, number)
        unfinished = [job for _, job in stored.list_workflow_jobs(tx.conn, number) if not job.is_terminal]
        for job in reversed(unfinished):
            cancel_in_transaction(context, caller, tx, job)
        details = {"name": workflow.name, "jobs": len(unfinished)}
        accounts.add_audit_entry(tx, caller, "workflow.cancel", f"workflow {number}", details, context.now())
        return [job.id for job in unfinished]

    return context.store.write(change)


def retry_workflow(
    context: Context, caller: Caller, number: WorkflowId, read_job: ParseJobRequest, key: str | None = None
) -> list[JobId]:
    """New jobs for those that have not completed, and for all their descendants; other jobs stay."""
    view = get_workflow(context, caller, number)
    _check_owner(caller, view.workflow)
    plan = plan_workflow(
        json.loads(get_workflow_document(context, caller, number)), view.workflow.params, read_job
    )
    retried_keys = _keys_to_retry(view, plan.expanded.jobs)
    known = {row.key: row for row, _ in view.jobs}
    nodes = [node for node in plan.expanded.jobs if node.key in retried_keys]
    requests = [
        _retry_request(request, retried_keys, known)
        for node, request in zip(plan.expanded.jobs, plan.requests, strict=True)
        if node.key in retried_keys
    ]
    about = f"retry workflow {number} {sorted(known[name].job_id for name in retried_keys)}"
    submission = prepare_submission(context, caller, requests, key, about)

    def change(tx: Transaction) -> list[JobId]:
        submitted = submission(tx)
        if stored.find_workflow_of_job(tx.conn, submitted.job_ids[0]) is not None:
            return list(submitted.job_ids)  # the same request again
        now_known = {row.key: row.job_id for row, _ in stored.list_workflow_jobs(tx.conn, number)}
        if any(now_known[name] != known[name].job_id for name in retried_keys):
            raise Conflict(
                "Another request has just retried this workflow.", f"See `helio workflow show {number}`."
            )
        replaced = [(known[node.key], job_id) for node, job_id in zip(nodes, submitted.job_ids, strict=True)]
        stored.replace_workflow_jobs(tx, number, replaced)
        _decide_first_jobs(context, tx, number, nodes, submitted)
        details = {"jobs": len(replaced)}
        accounts.add_audit_entry(tx, caller, "workflow.retry", f"workflow {number}", details, context.now())
        return list(submitted.job_ids)

    return context.store.write(change)


def _decide_first_jobs(
    context: Context,
    tx: Transaction,
    number: WorkflowId,
    nodes: Sequence[ExpandedJob],
    submitted: SubmissionResult,
) -> None:
    """Store the membership of each job, and decide whether jobs without new parents start."""
    for node, job in zip(nodes, submitted.jobs, strict=True):
        job_writes.update_job(tx, job.id, {"part": workflow_membership(node, number)})
    keys = {node.key for node in nodes}
    refused: list[job_writes.JobTransition] = []
    decider = workflow_start_decisions.WorkflowStartDecider(tx)
    for node, job in zip(nodes, submitted.jobs, strict=True):
        is_plain = not node.needs and node.step.condition is None and not node.is_late
        if is_plain or not keys.isdisjoint(node.needs):
            continue
        decision = decider.decide_job(job.id)
        if decision is not None and decision.outcome is not None:
            refused.append(job_writes.cancellation_transition(decision.reason, job.id, context.now()))
    job_writes.apply_transitions(tx, refused)


def _keys_to_retry(view: WorkflowView, nodes: Sequence[ExpandedJob]) -> set[str]:
    """The keys of failed, cancelled and skipped jobs, and of all their descendants."""
    number = view.workflow.id
    if view.tally.waiting or view.tally.active:
        raise Conflict(
            f"Workflow {number} has not ended.", f"Wait until it ends, or: helio workflow cancel {number}."
        )
    retried_keys = {row.key for row, job in view.jobs if _has_failed(row, job)}
    if not retried_keys:
        raise Conflict(f"No job of workflow {number} has failed.", "Submit it again to run all its jobs.")
    children: dict[str, list[str]] = {}
    for node in nodes:
        for parent in node.needs:
            children.setdefault(parent, []).append(node.key)
    queue = list(retried_keys)
    while queue:
        new_keys = [key for key in children.get(queue.pop(), ()) if key not in retried_keys]
        retried_keys.update(new_keys)
        queue += new_keys
    return retried_keys


def _has_failed(row: WorkflowJob, job: Job) -> bool:
    kind = stored.classify_workflow_job(job.state, row.outcome, goes_on=row.continue_on_failure)
    return kind in ("failed", "cancelled") or (kind == "skipped" and row.is_after_failure)


def _retry_request(
    request: JobRequest, retried_keys: Collection[str], known: dict[str, WorkflowJob]
) -> JobRequest:
    """References to parents that are not retried become job ids: these parents have ended."""
    after = tuple(
        parent
        if parent.reference in retried_keys
        else ParentReference(str(known[parent.reference].job_id), DependencyCondition.WORKFLOW_DECIDES)
        for parent in request.after
    )
    return replace(request, after=after)


def _visible(conn: Connection, caller: Caller, number: WorkflowId) -> Workflow:
    workflow = stored.find_workflow(conn, number)
    visible = workflow is not None and (
        workflow.user == caller.user.name or caller.user.may_manage(workflow.project)
    )
    return _require_found(workflow if visible else None, number)


def _require_found(workflow: Workflow | None, number: WorkflowId) -> Workflow:
    if workflow is None:
        raise NotFound(f"There is no workflow {number}.", "`helio workflow list` lists yours.")
    return workflow


def _check_owner(caller: Caller, workflow: Workflow) -> None:
    """Its jobs run with the owner's permissions, and its document is private."""
    if workflow.user != caller.user.name:
        raise Forbidden(
            f"Workflow {workflow.id} belongs to {workflow.user}.", f"You can cancel it, or ask {workflow.user}."
        )
