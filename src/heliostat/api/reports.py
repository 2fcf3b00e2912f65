"""Endpoint of the usage report."""

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

from fastapi import Query
from starlette.responses import JSONResponse, Response

from heliostat.api.request_bodies import BodyRouter
from heliostat.api.request_context import CallerDep, ContextDep
from heliostat.api.time_fields import DayParam
from heliostat.services.cluster.usage_reports import PeriodRequest, usage_report, usage_report_csv

router = BodyRouter(tags=["reports"])
MonthParam = Annotated[
    str | None,
    Query(
        max_length=20,
        description="For example 2026-11. Default: the current month.",
        json_schema_extra={"pattern": "^(|(19[789]|[2-8][0-9]{2})[0-9]-(0[1-9]|1[0-2]))$"},
    ),
]

FirstDayParam = Annotated[DayParam, Query(alias="from", description="First day, in UTC, instead of a month.")]
LastDayParam = Annotated[DayParam, Query(alias="to", description="Last day, in UTC. Default: today.")]


class ReportGrouping(StrEnum):
    DEPARTMENT = "department"
    PROJECT = "project"
    USER = "user"
    GPU_TYPE = "gpu_type"


class ReportFormat(StrEnum):
    JSON = "json"
    CSV = "csv"


@router.get("/report", responses={200: {"content": {"text/csv": {}}}})
def show_report(
    caller: CallerDep,
    context: ContextDep,
    month: MonthParam = None,
    first_day: FirstDayParam = None,
    last_day: LastDayParam = None,
    by: ReportGrouping = ReportGrouping.PROJECT,
    format: ReportFormat = ReportFormat.JSON,  # noqa: A002 - the name people expect
) -> Response:
    """Show the usage of a month, or of the days `from` to `to`. Admins see all users, managers their projects,
    other users only themselves."""
    lines = usage_report(context, caller, PeriodRequest(month, first_day, last_day), by.value)
    if format is ReportFormat.CSV:
        headers = {"Content-Disposition": f'attachment; filename="heliostat-{by.value}.csv"'}
        return Response(usage_report_csv(lines, by.value), media_type="text/csv; charset=utf-8", headers=headers)
    return JSONResponse({"items": [asdict(line) for line in lines], "next_cursor": None})
