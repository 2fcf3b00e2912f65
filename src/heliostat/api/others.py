"""The endpoint about jobs that did not come through us."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from heliostat.api.deps import CallerDep, ContextDep
from heliostat.api.views import Json, time_view
from heliostat.models import ForeignJob
from heliostat.services.cluster.others import list_others

router = APIRouter(tags=["queue"])


@router.get("/others")
def others(
    caller: CallerDep,
    context: ContextDep,
    node: Annotated[str | None, Query(max_length=128)] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
) -> Response:
    """Jobs that went to Slurm without Heliostat, not stored here: those that run, then those that wait."""
    found = list_others(context, caller, node)
    items = [foreign_view(job) for job in found[:limit]]
    return JSONResponse({"items": items, "total": len(found), "next_cursor": None})


def foreign_view(job: ForeignJob) -> Json:
    return {
        "id": job.id,
        "user": job.user,
        "name": job.name,
        "state": job.state,
        "reason": job.reason,
        "cpus": job.cpus,
        "memory_mib": job.memory_mib,
        "gpus": job.gpus,
        "tasks": job.tasks,
        "nodes": [place.node for place in job.places],
        "devices": [uuid for place in job.places for uuid in place.devices],
        "submitted_at": time_view(job.submitted_at),
        "started_at": time_view(job.started_at),
        "time_limit_seconds": job.time_limit_seconds,
        "act_with": job.act_with,
    }
