"""Endpoints about repeating jobs: what is kept, once more, what differed."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Header
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from heliostat.api.request_context import CallerDep, ContextDep, IdPath
from heliostat.api.request_schemas import SourceCodeBody
from heliostat.api.serialization import serialize_job, serialize_request
from heliostat.api.validation import read_job
from heliostat.services.jobs.comparison import compare_jobs
from heliostat.services.jobs.reruns import (
    JobWithProvenance,
    get_job_with_provenance,
    pin_image_digest,
    rerun_fields,
    rerun_job,
    rerun_warnings,
)

router = APIRouter(tags=["records"])
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
FieldName = Annotated[str, Field(max_length=64)]


class RerunBody(BaseModel):
    """What is to be different, in the fields of a job; null takes one away."""

    model_config = ConfigDict(extra="forbid")

    changes: Annotated[dict[FieldName, Any], Field(max_length=64)] = {}
    record: SourceCodeBody | None = Field(default=None, description="The state of the folder it runs in now.")


@router.get("/jobs/{job_id}/record")
def show_provenance(job_id: IdPath, caller: CallerDep, context: ContextDep) -> Response:
    """What is kept of how to repeat the job: its code, the machines it ran on, what it asked for. No values of
    environment variables."""
    return JSONResponse(serialize_provenance(get_job_with_provenance(context, caller, job_id)))


@router.get("/jobs/{job_id}/diff/{other_id}")
def show_differences(job_id: IdPath, other_id: IdPath, caller: CallerDep, context: ContextDep) -> Response:
    """What differed between two jobs: request, environment, code, machine, result, time."""
    compared = compare_jobs(context, caller, job_id, other_id)
    return JSONResponse(asdict(compared) | {"same": list(compared.same)})


@router.post("/jobs/{job_id}/rerun", status_code=201)
def submit_rerun(
    job_id: IdPath, body: RerunBody, caller: CallerDep, context: ContextDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """The same job once more, under your name, with the same code and but for `changes` the same request."""
    kept = get_job_with_provenance(context, caller, job_id)
    fields = rerun_fields(kept.job, caller.user, serialize_request(kept.job), body.changes)
    if "image" not in body.changes:
        fields = pin_image_digest(kept, fields)
    if body.record is not None:
        fields["record"] = body.record.model_dump(exclude_unset=True)
    request = read_job(fields)
    job = rerun_job(context, caller, kept, request, idempotency_key).jobs[0]
    view = serialize_job(job, context.controller.wait_reason(job))
    return JSONResponse({"job": view, "notes": rerun_warnings(kept, request)}, 201)


def serialize_provenance(kept: JobWithProvenance) -> dict[str, Any]:
    request = serialize_request(kept.job) | {"env": sorted(kept.job.spec.env)}
    code, record = kept.provenance.code, kept.provenance
    return {
        "job_id": kept.job.id,
        "code": None if code is None else asdict(code),
        "upload": _upload_view(kept),
        "machines": [{"attempt": number, **asdict(machine)} for number, machine in record.attempt_environments],
        "request": request,
        "rerun_of": record.rerun_of,
        "reruns": list(kept.reruns),
    }


def _upload_view(kept: JobWithProvenance) -> dict[str, Any] | None:
    if kept.job.spec.upload is None:
        return None
    tree = kept.code_tree
    sizes = {} if tree is None else {"files": len(tree.files), "size_bytes": tree.size_bytes}
    return {"id": kept.job.spec.upload, "is_there": tree is not None, **sizes}
