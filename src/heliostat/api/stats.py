"""Endpoints of usage statistics of jobs, nodes and the cluster."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.responses import JSONResponse, Response

from heliostat.api.request_context import CallerDep, ContextDep, IdPath
from heliostat.api.serialization import serialize_time
from heliostat.models import TimeSeries
from heliostat.services.cluster import stats as services
from heliostat.services.cluster.stats import StatsPeriod

router = APIRouter(tags=["stats"])
NodeName = Annotated[str, Path(max_length=128)]


@router.get("/jobs/{job_id}/stats")
def show_job_stats(job_id: IdPath, caller: CallerDep, context: ContextDep) -> Response:
    """Show the usage of a job over time, a summary, and how efficiently it used its resources."""
    found = services.job_stats(context, caller, job_id)
    return JSONResponse(
        {
            "job_id": found.job_id,
            "requested": asdict(found.requested),
            "device_memory_mib": list(found.device_memory_mib),
            "efficiency": asdict(found.efficiency) | {"text": found.efficiency.text},
            "summary": asdict(found.summary),
            "accounting_usage": None if found.accounting_usage is None else asdict(found.accounting_usage),
            "series": _series(found.series),
        }
    )


@router.get("/nodes/{name}/stats")
def show_node_stats(
    name: NodeName, caller: CallerDep, context: ContextDep, span: StatsPeriod = StatsPeriod.DAY
) -> Response:
    """Show the usage of a node over time, by jobs and all other processes."""
    found = services.node_stats(context, caller, name, span)
    return JSONResponse({"node": found.name, "span": found.span.value, "series": _series(found.series)})


@router.get("/cluster/stats")
def show_cluster_stats(caller: CallerDep, context: ContextDep, span: StatsPeriod = StatsPeriod.DAY) -> Response:
    """Show total, allocated and used resources of all nodes over time, and the number of waiting jobs."""
    found = services.cluster_stats(context, caller, span)
    return JSONResponse({"span": found.span.value, "series": _series(found.series)})


def _series(series: tuple[TimeSeries, ...]) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "unit": one.unit,
            "start_at": serialize_time(one.start_at),
            "step_seconds": one.step_seconds,
            "mean": list(one.mean),
            "max": list(one.max),
            "last": one.last,
        }
        for one in series
    ]
