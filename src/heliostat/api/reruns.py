"""Endpoint that submits a job again."""

from typing import Annotated, Any

from fastapi import Header
from pydantic import AfterValidator, Field
from starlette.responses import JSONResponse, Response

from heliostat.api.request_bodies import BodyRouter, Entries, RequestBody, check_depth
from heliostat.api.request_context import CallerDep, ContextDep, IdPath
from heliostat.api.serialization import serialize_job, serialize_request
from heliostat.api.source_code_schemas import SourceCodeBody
from heliostat.api.validation import read_job
from heliostat.services.jobs.reruns import (
    get_job_with_provenance,
    pin_image_digest,
    rerun_fields,
    rerun_job,
    rerun_warnings,
)

router = BodyRouter(tags=["records"])
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
FieldName = Annotated[str, Field(max_length=64)]


class RerunBody(RequestBody):
    """Fields of the job to change; null removes a field."""

    changes: Annotated[dict[FieldName, Any], Entries(64), AfterValidator(check_depth)] = {}
    record: SourceCodeBody | None = Field(
        default=None, description="Git state of the folder that it is submitted from."
    )


@router.post("/jobs/{job_id}/rerun", status_code=201)
def submit_rerun(
    job_id: IdPath, body: RerunBody, caller: CallerDep, context: ContextDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Submit a job again, as your own job, with the same code and the same request except for `changes`."""
    original = get_job_with_provenance(context, caller, job_id)
    fields = rerun_fields(original.job, caller.user, serialize_request(original.job), body.changes)
    if "image" not in body.changes:
        fields = pin_image_digest(original, fields)
    if body.record is not None:
        fields["record"] = body.record.model_dump(exclude_unset=True)
    request = read_job(fields)
    job = rerun_job(context, caller, original, request, idempotency_key).jobs[0]
    view = serialize_job(job, context.controller.wait_reason(job))
    return JSONResponse({"job": view, "notes": rerun_warnings(original, request)}, 201)
