"""Endpoints of workflows."""

import json
from typing import Annotated

from fastapi import Header, Path, Query
from pydantic import Field, StrictBool

from heliostat.api.account_schemas import ListResponse
from heliostat.api.request_bodies import BodyRouter, Entries, JsonObject, RequestBody
from heliostat.api.request_context import CallerDep, ContextDep
from heliostat.api.serialization import Json, serialize_time
from heliostat.api.source_code_schemas import SourceCodeBody, with_source_code
from heliostat.api.validation import read_job
from heliostat.models import Caller, Job
from heliostat.models.workflows import WorkflowJob
from heliostat.services.context import Context
from heliostat.services.workflows import lifecycle as services
from heliostat.services.workflows.plans import plan_workflow

router = BodyRouter(tags=["workflows"])
WorkflowId = Annotated[int, Path(ge=1, le=2**53)]
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]


class WorkflowBody(RequestBody):
    """A workflow to submit."""

    workflow: JsonObject = Field(description="As in a workflow file: name, project, params, jobs.")
    params: Annotated[JsonObject, Entries(200)] = Field(
        default={}, description="Values of its parameters; omitted parameters have their default."
    )
    record: SourceCodeBody | None = Field(
        default=None, description="Git state of the code that it is submitted with."
    )
    dry_run: StrictBool = Field(default=False, description="Only check it and return its jobs.")


@router.post("/workflows", status_code=201, summary="Submit a workflow: all jobs, or none if one is invalid")
def submit_workflow(
    body: WorkflowBody, caller: CallerDep, context: ContextDep, idempotency_key: IdempotencyKey = None
) -> Json:
    plan = plan_workflow(body.workflow, body.params, with_source_code(read_job, body.record))
    if body.dry_run:
        nodes = plan.expanded.jobs
        jobs = [{"key": node.key, "values": dict(node.values), "needs": list(node.needs)} for node in nodes]
        return {"params": dict(plan.expanded.params), "jobs": jobs}
    made = services.submit_workflow(context, caller, plan, idempotency_key)
    return serialize_workflow(services.get_workflow_summary(context, caller, made.id))


@router.get("/workflows", summary="List your workflows, newest first")
def list_workflows(
    caller: CallerDep,
    context: ContextDep,
    all_users: Annotated[bool, Query(alias="all", description="Include projects that you manage.")] = False,
    limit: Annotated[int, Query(ge=1, le=200)] = services.PAGE_SIZE,
    before: Annotated[int | None, Query(ge=1, le=2**53, description="Only workflows with smaller ids.")] = None,
) -> ListResponse[Json]:
    found = services.list_workflows(context, caller, all_users=all_users, limit=limit, before=before)
    return ListResponse(items=[serialize_workflow(one) for one in found])


@router.get("/workflows/{number}", summary="Show a workflow with its jobs and their outputs")
def show_workflow(number: WorkflowId, caller: CallerDep, context: ContextDep) -> Json:
    return _detail_view(context, caller, number)


@router.get("/workflows/{number}/document", summary="Show the file of your workflow")
def show_workflow_file(number: WorkflowId, caller: CallerDep, context: ContextDep) -> Json:
    found: Json = json.loads(services.get_workflow_document(context, caller, number))
    return found


@router.post("/workflows/{number}/retry", summary="Run failed jobs and their dependents again")
def retry_workflow(
    number: WorkflowId, caller: CallerDep, context: ContextDep, idempotency_key: IdempotencyKey = None
) -> Json:
    job_ids = services.retry_workflow(context, caller, number, read_job, idempotency_key)
    return {**_detail_view(context, caller, number), "job_ids": job_ids}


@router.post("/workflows/{number}/cancel", summary="Cancel all jobs of a workflow that have not ended")
def cancel_workflow(number: WorkflowId, caller: CallerDep, context: ContextDep) -> Json:
    job_ids = services.cancel_workflow(context, caller, number)
    return {**serialize_workflow(services.get_workflow_summary(context, caller, number)), "job_ids": job_ids}


def serialize_workflow(found: services.WorkflowView) -> Json:
    one, tally = found.workflow, found.tally
    return {
        "id": one.id,
        "name": one.name,
        "user": one.user,
        "project": one.project,
        "state": tally.state.value,
        "created_at": serialize_time(one.created_at),
        "params": dict(one.params),
        "counts": {
            "total": tally.total,
            "waiting": tally.waiting,
            "active": tally.active,
            "completed": tally.completed,
            "failed": tally.failed,
            "forgiven": tally.forgiven,
            "cancelled": tally.cancelled,
            "skipped": tally.skipped,
        },
    }


def _detail_view(context: Context, caller: Caller, number: int) -> Json:
    found = services.get_workflow(context, caller, number)
    jobs = [_job_view(row, job, found.outputs.get(job.id, {})) for row, job in found.jobs]
    return {**serialize_workflow(found), "jobs": jobs}


def _job_view(row: WorkflowJob, job: Job, outputs: dict[str, str]) -> Json:
    return {
        "key": row.key,
        "job": row.step,
        "values": dict(row.values),
        "needs": list(row.needs),
        "if": row.condition,
        "continue_on_failure": row.continue_on_failure,
        "job_id": job.id,
        "state": row.outcome or job.state.value,
        "reason": job.reason,
        "started_at": serialize_time(job.started_at),
        "ended_at": serialize_time(job.ended_at),
        "exit_code": job.exit_code,
        "retries": job.retries,
        "outputs": outputs,
        "earlier": list(row.previous_job_ids),
    }
