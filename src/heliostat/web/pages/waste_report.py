"""Monthly waste report: used, idle and returned GPU-hours; for admins, a preview of steps against idle GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query
from markupsafe import Markup
from starlette.responses import Response

from heliostat.services.cluster.usage_reports import PeriodRequest, list_report_months
from heliostat.services.fair_use.ladder_preview import IdleJobPreview, preview_idle_ladder
from heliostat.services.fair_use.waste_report import WasteReportLine, waste_report, waste_report_csv
from heliostat.web.pages.reports import describe_scope, draw_two_part_bar, month_title
from heliostat.web.rendering import PAGE_HEADERS, PageSpec, render_page
from heliostat.web.request_context import AdminDep, AuthenticatedDep
from heliostat.web.view_models import PageUrl

router = APIRouter()
MonthParam = Annotated[str, Query(max_length=20)]
_REPORTS = ("Reports", "/reports")


class WasteGrouping(StrEnum):
    DEPARTMENT = "department"
    PROJECT = "project"
    USER = "user"


@dataclass(frozen=True, slots=True)
class WasteRow:
    line: WasteReportLine
    idle_fraction: float  # of the granted GPU-hours
    bar: Markup


@dataclass(frozen=True, slots=True)
class WasteView:
    month: str
    month_title: str
    month_options: tuple[tuple[str, str], ...]
    by: str
    grouping_links: tuple[tuple[str, str], ...]
    csv_url: str
    preview_url: str  # empty: not an admin
    rows: tuple[WasteRow, ...]
    granted: float
    used: float
    idle: float
    returned: float
    scope_text: str


@dataclass(frozen=True, slots=True)
class IdlePreviewView:
    month: str
    month_title: str
    month_options: tuple[tuple[str, str], ...]
    previews: tuple[IdleJobPreview, ...]
    ended: int
    returned: float
    steps: tuple[str, ...]  # that are on


@router.get("/reports/waste")
def show_waste_report(
    request: AuthenticatedDep, month: MonthParam = "", by: WasteGrouping = WasteGrouping.PROJECT
) -> Response:
    months = list_report_months(request.context)
    chosen = month or months[0]
    lines = waste_report(request.context, request.caller, PeriodRequest(chosen), by.value)
    url = PageUrl("/reports/waste", {"month": chosen, "by": by.value})
    view = WasteView(
        month=chosen,
        month_title=month_title(chosen),
        month_options=_month_options(months, chosen),
        by=by.value,
        grouping_links=tuple((group.value, url.with_query(by=group.value)) for group in WasteGrouping),
        csv_url=PageUrl("/reports/waste.csv", url.query).with_query(),
        preview_url=f"/reports/idle?month={chosen}" if request.user.is_admin else "",
        rows=_rows(lines),
        granted=sum(line.granted_gpu_hours for line in lines),
        used=sum(line.used_gpu_hours for line in lines),
        idle=sum(line.idle_gpu_hours for line in lines),
        returned=sum(line.returned_gpu_hours for line in lines),
        scope_text=describe_scope(request.user),
    )
    return render_page(request, PageSpec("waste_report.html", "Waste", breadcrumbs=(_REPORTS,)), view)


@router.get("/reports/waste.csv")
def download_waste_report(
    request: AuthenticatedDep, month: MonthParam = "", by: WasteGrouping = WasteGrouping.PROJECT
) -> Response:
    lines = waste_report(request.context, request.caller, PeriodRequest(month or None), by.value)
    filename = f"heliostat-waste-{month or list_report_months(request.context)[0]}-{by.value}.csv"
    headers = PAGE_HEADERS | {"Content-Disposition": f'attachment; filename="{filename}"'}
    return Response(waste_report_csv(lines, by.value), media_type="text/csv; charset=utf-8", headers=headers)


@router.get("/reports/idle")
def show_idle_preview(request: AdminDep, month: MonthParam = "") -> Response:
    months = list_report_months(request.context)
    chosen = month or months[0]
    previews = preview_idle_ladder(request.context, request.caller, PeriodRequest(chosen))
    view = IdlePreviewView(
        chosen,
        month_title(chosen),
        _month_options(months, chosen),
        tuple(previews),
        sum(preview.returned_gpu_hours > 0 for preview in previews),
        sum(preview.returned_gpu_hours for preview in previews),
        request.context.settings.fair_use.idle_steps,
    )
    page = PageSpec("idle_preview.html", "Idle GPUs", breadcrumbs=(_REPORTS, ("Waste", "/reports/waste")))
    return render_page(request, page, view)


def _month_options(months: Sequence[str], chosen: str) -> tuple[tuple[str, str], ...]:
    return tuple((month, month_title(month)) for month in dict.fromkeys([*months, chosen]))


def _rows(lines: Sequence[WasteReportLine]) -> tuple[WasteRow, ...]:
    largest = max((line.granted_gpu_hours for line in lines), default=0.0) or 1.0
    return tuple(
        WasteRow(
            line,
            line.idle_gpu_hours / line.granted_gpu_hours if line.granted_gpu_hours else 0.0,
            draw_two_part_bar(
                line.granted_gpu_hours / largest,
                line.idle_gpu_hours / largest,
                f"{line.granted_gpu_hours:,.1f} GPU-hours, {line.idle_gpu_hours:,.1f} of them idle",
            ),
        )
        for line in lines
    )
