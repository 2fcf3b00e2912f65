"""Endpoints of reports: usage, waste, and a preview of steps against idle GPUs."""

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

from fastapi import Query
from starlette.responses import JSONResponse, Response

from heliostat.api.request_bodies import BodyRouter
from heliostat.api.request_context import CallerDep, ContextDep
from heliostat.api.serialization import serialize_time
from heliostat.api.time_fields import DayParam
from heliostat.services.cluster.usage_reports import PeriodRequest, usage_report, usage_report_csv
from heliostat.services.fair_use.ladder_preview import IdleJobPreview, preview_idle_ladder
from heliostat.services.fair_use.waste_report import waste_report, waste_report_csv

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


class WasteGrouping(StrEnum):
    DEPARTMENT = "department"
    PROJECT = "project"
    USER = "user"


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
        return _csv(usage_report_csv(lines, by.value), by.value)
    return JSONResponse({"items": [asdict(line) for line in lines], "next_cursor": None})


@router.get("/report/waste", responses={200: {"content": {"text/csv": {}}}})
def show_waste_report(
    caller: CallerDep,
    context: ContextDep,
    month: MonthParam = None,
    first_day: FirstDayParam = None,
    last_day: LastDayParam = None,
    by: WasteGrouping = WasteGrouping.PROJECT,
    format: ReportFormat = ReportFormat.JSON,  # noqa: A002 - the name people expect
) -> Response:
    """Show granted, used, idle and returned GPU-hours of a period. Admins see all users, managers their projects,
    other users only themselves."""
    lines = waste_report(context, caller, PeriodRequest(month, first_day, last_day), by.value)
    if format is ReportFormat.CSV:
        return _csv(waste_report_csv(lines, by.value), f"waste-{by.value}")
    return JSONResponse({"items": [asdict(line) for line in lines], "next_cursor": None})


@router.get("/report/idle")
def show_idle_preview(
    caller: CallerDep,
    context: ContextDep,
    month: MonthParam = None,
    first_day: FirstDayParam = None,
    last_day: LastDayParam = None,
) -> Response:
    """Show what all steps against idle GPUs would have done in a period. For admins."""
    previews = preview_idle_ladder(context, caller, PeriodRequest(month, first_day, last_day))
    return JSONResponse({"items": [_serialize_preview(preview) for preview in previews], "next_cursor": None})


def _serialize_preview(preview: IdleJobPreview) -> dict[str, object]:
    steps = [{"step": planned.step.value, "at": serialize_time(planned.at)} for planned in preview.steps]
    return asdict(preview) | {"steps": steps}


def _csv(text: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="heliostat-{name}.csv"'}
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)
