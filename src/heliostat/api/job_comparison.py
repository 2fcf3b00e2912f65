"""Endpoint that compares two jobs."""

from dataclasses import asdict

from starlette.responses import JSONResponse, Response

from heliostat.api.request_bodies import BodyRouter
from heliostat.api.request_context import CallerDep, ContextDep, IdPath
from heliostat.services.jobs.comparison import compare_jobs

router = BodyRouter(tags=["records"])


@router.get("/jobs/{job_id}/diff/{other_id}")
def show_differences(job_id: IdPath, other_id: IdPath, caller: CallerDep, context: ContextDep) -> Response:
    """Show the differences between two jobs: request, environment, code, node, result, time."""
    comparison = compare_jobs(context, caller, job_id, other_id)
    return JSONResponse(asdict(comparison) | {"same": list(comparison.same)})
