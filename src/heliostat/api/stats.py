"""Endpoints of usage statistics of jobs, nodes and the cluster."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Path
from starlette.responses import JSONResponse, Response

from heliostat.api.request_bodies import BodyRouter
from heliostat.api.request_context import CallerDep, ContextDep, IdPath
from heliostat.api.serialization import Json, serialize_time
from heliostat.models import TimeSeries
from heliostat.services.cluster import stats as services
from heliostat.services.cluster.stats import StatsPeriod
from heliostat.services.efficiency import EfficiencyReport

router = BodyRouter(tags=["stats"])
NodeName = Annotated[str, Path(max_length=128)]


@router.get("/jobs/{job_id}/stats")
def show_job_stats(job_id: IdPath, caller: CallerDep, context: ContextDep) -> Response:
    """Show the usage of a job over time, a summary, and how efficiently it used its resources."""
    stats = services.job_stats(context, caller, job_id)
    return JSONResponse(
        {
            "job_id": stats.job_id,
            "requested": asdict(stats.requested),
            "device_names": list(stats.devices.names),
            "device_memory_mib": list(stats.devices.memory_mib),
            "efficiency": serialize_efficiency(stats.efficiency),
            "summary": asdict(stats.summary),
            "accounting_usage": None if stats.accounting_usage is None else asdict(stats.accounting_usage),
            "series": _series_view(stats.series),
        }
    )


@router.get("/nodes/{name}/stats")
def show_node_stats(
    name: NodeName, caller: CallerDep, context: ContextDep, span: StatsPeriod = StatsPeriod.DAY
) -> Response:
    """Show the usage of a node over time, by jobs and all other processes."""
    stats = services.node_stats(context, caller, name, span)
    return JSONResponse({"node": stats.name, "span": stats.span.value, "series": _series_view(stats.series)})


@router.get("/cluster/stats")
def show_cluster_stats(caller: CallerDep, context: ContextDep, span: StatsPeriod = StatsPeriod.DAY) -> Response:
    """Show total, allocated and used resources of all nodes over time, and the number of waiting jobs."""
    stats = services.cluster_stats(context, caller, span)
    return JSONResponse({"span": stats.span.value, "series": _series_view(stats.series)})


def serialize_efficiency(report: EfficiencyReport) -> Json:
    return asdict(report) | {"text": report.text, "options": report.options, "advice": report.advice}


def _series_view(all_series: tuple[TimeSeries, ...]) -> list[dict[str, Any]]:
    return [
        {
            "name": series.name,
            "unit": series.unit,
            "start_at": serialize_time(series.start_at),
            "step_seconds": series.step_seconds,
            "mean": list(series.mean),
            "max": list(series.max),
            "last": series.last,
        }
        for series in all_series
    ]
