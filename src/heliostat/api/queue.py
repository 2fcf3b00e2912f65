"""Endpoints that explain the queue: wait reasons, start forecasts, fair shares, and foreign jobs in Slurm."""

from typing import Annotated

from fastapi import Query
from starlette.responses import JSONResponse, Response

from heliostat.api.job_schemas import StartForecastBody
from heliostat.api.request_bodies import BodyRouter
from heliostat.api.request_context import CallerDep, ContextDep, IdPath
from heliostat.api.serialization import (
    Json,
    serialize_account_delivery,
    serialize_explanation,
    serialize_share_account,
    serialize_start_forecast,
    serialize_time,
)
from heliostat.api.time_fields import DayParam
from heliostat.models import ForeignJob
from heliostat.services.accounts.share_delivery import share_delivery
from heliostat.services.accounts.share_tree import share_tree, usage_source
from heliostat.services.cluster.foreign_jobs import list_foreign_jobs
from heliostat.services.jobs.explanation import explain_job, forecast_request

router = BodyRouter(tags=["queue"])
SinceParam = Annotated[DayParam, Query(description="First day, in UTC: 2026-11-01. Default: two weeks ago.")]


@router.get("/jobs/{job_id}/why")
def show_wait_reason(job_id: IdPath, caller: CallerDep, context: ContextDep, what_if: bool = False) -> Response:
    """Explain why a job waits: its position, the jobs ahead, what blocks it, its start forecast, and with
    `what_if` which changes would start it earlier."""
    return JSONResponse(serialize_explanation(explain_job(context, caller, job_id, what_if=what_if)))


@router.post("/when")
def forecast_start(body: StartForecastBody, caller: CallerDep, context: ContextDep) -> Response:
    """Forecast when a job would start if submitted now, and which changes would start it earlier. Stores
    nothing."""
    estimate = forecast_request(context, caller, body.to_request())
    return JSONResponse(serialize_start_forecast(estimate, context.forecaster.accuracy()))


@router.get("/share")
def show_shares(caller: CallerDep, context: ContextDep) -> Response:
    """Show the fair-share tree: share and usage of departments, projects, and users of your projects."""
    tree = [serialize_share_account(account) for account in share_tree(context, caller)]
    return JSONResponse({"items": tree, "next_cursor": None, "usage_source": usage_source(context)})


@router.get("/share/delivery")
def show_share_delivery(caller: CallerDep, context: ContextDep, since: SinceParam = None) -> Response:
    """Compare what departments, projects, and users of your projects were entitled to with what they received,
    since the beginning of a day."""
    report = share_delivery(context, caller, since)
    return JSONResponse(
        {
            "items": [serialize_account_delivery(department) for department in report.departments],
            "next_cursor": None,
            "start_at": serialize_time(report.period.start),
            "end_at": serialize_time(report.period.end),
            "step_days": report.period.step_days,
        }
    )


@router.get("/foreign-jobs")
def show_foreign_jobs(
    caller: CallerDep,
    context: ContextDep,
    node: Annotated[str | None, Query(max_length=128)] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
) -> Response:
    """List jobs that were submitted to Slurm without Heliostat: running jobs first, then waiting jobs."""
    jobs = list_foreign_jobs(context, caller, node)
    items = [serialize_foreign_job(job) for job in jobs[:limit]]
    return JSONResponse({"items": items, "total": len(jobs), "next_cursor": None})


def serialize_foreign_job(job: ForeignJob) -> Json:
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
        "submitted_at": serialize_time(job.submitted_at),
        "started_at": serialize_time(job.started_at),
        "time_limit_seconds": job.time_limit_seconds,
        "cancel_command": job.cancel_command,
    }
