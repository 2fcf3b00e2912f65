"""Endpoint of provenance: the record of a job, with the data needed to repeat it."""

from dataclasses import asdict
from typing import Any

from starlette.responses import JSONResponse, Response

from heliostat.api.request_bodies import BodyRouter
from heliostat.api.request_context import CallerDep, ContextDep, IdPath
from heliostat.api.serialization import serialize_request
from heliostat.services.jobs.reruns import (
    JobWithProvenance,
    get_job_with_provenance,
)

router = BodyRouter(tags=["records"])


@router.get("/jobs/{job_id}/record")
def show_provenance(job_id: IdPath, caller: CallerDep, context: ContextDep) -> Response:
    """Show the data needed to repeat a job: its code, the nodes it ran on, its request. Values of environment
    variables are omitted."""
    return JSONResponse(serialize_provenance(get_job_with_provenance(context, caller, job_id)))


def serialize_provenance(recorded: JobWithProvenance) -> dict[str, Any]:
    request = serialize_request(recorded.job) | {"env": sorted(recorded.job.spec.env)}
    code, record = recorded.provenance.code, recorded.provenance
    return {
        "job_id": recorded.job.id,
        "code": None if code is None else asdict(code),
        "upload": _upload_view(recorded),
        "machines": [{"attempt": number, **asdict(node)} for number, node in record.attempt_environments],
        "request": request,
        "rerun_of": record.rerun_of,
        "reruns": list(recorded.reruns),
    }


def _upload_view(recorded: JobWithProvenance) -> dict[str, Any] | None:
    if recorded.job.spec.upload is None:
        return None
    tree = recorded.code_tree
    sizes = {} if tree is None else {"files": len(tree.files), "size_bytes": tree.size_bytes}
    return {"id": recorded.job.spec.upload, "is_there": tree is not None, **sizes}
