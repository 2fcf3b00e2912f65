"""Endpoints of usage statistics of jobs, nodes and the cluster."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Path, Query
from starlette.responses import JSONResponse, Response

from heliostat.api.request_bodies import BodyRouter
from heliostat.api.request_context import CallerDep, ContextDep, IdPath
from heliostat.api.serialization import Json, serialize_time
from heliostat.api.time_fields import TimeParam
from heliostat.models import JobId, TimeSeries
from heliostat.services.cluster import stats as services
from heliostat.services.cluster.efficiency_report import JobEfficiency, list_job_efficiency
from heliostat.services.cluster.stats import StatsPeriod
from heliostat.services.efficiency import EfficiencyReport, RequestedResources
from heliostat.services.energy import EnergyEstimate

router = BodyRouter(tags=["stats"])
FilterText = Annotated[str | None, Query(max_length=128, pattern=r"^[^\x00]*$")]
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
            "efficiency": _serialize_efficiency(stats.efficiency, job_id),
            "run_seconds": round(stats.run_seconds, 1),
            "summary": asdict(stats.summary),
            "energy": _energy_view(stats.energy),
            "accounting_usage": None if stats.accounting_usage is None else asdict(stats.accounting_usage),
            "series": _series_view(stats.series),
        }
    )


@router.get("/efficiency")
def show_efficiency(
    caller: CallerDep, context: ContextDep, project: FilterText = None, since: TimeParam = None
) -> Response:
    """List your ended jobs, or those of a project that you manage, with what would have been enough; the largest
    waste first. At most the 500 newest."""
    found = list_job_efficiency(context, caller, project, since)
    return JSONResponse({"items": [_efficiency_view(each) for each in found], "next_cursor": None})


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


def _serialize_efficiency(report: EfficiencyReport, job_id: JobId) -> Json:
    return asdict(report) | {
        "text": report.text,
        "options": report.options,
        "advice": report.advice,
        "command": report.rerun_command(job_id),
    }


def _energy_view(energy: EnergyEstimate | None) -> Json | None:
    return None if energy is None else asdict(energy)


def _efficiency_view(each: JobEfficiency) -> Json:
    job, usage = each.job, each.usage
    return {
        "job_id": job.id,
        "name": job.name,
        "user": job.user,
        "project": job.project,
        "state": job.state.value,
        "ended_at": serialize_time(job.ended_at),
        "run_seconds": round(usage.run_seconds, 1),
        "requested": asdict(RequestedResources.from_job(job)),
        "summary": asdict(usage.summary),
        "energy": _energy_view(usage.energy),
        "unused_gpu_hours": each.unused_gpu_hours,
        "unused_cpu_hours": each.unused_cpu_hours,
        "efficiency": _serialize_efficiency(each.report, job.id),
    }


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
