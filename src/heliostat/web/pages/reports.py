"""Monthly usage report: table, bar chart and CSV file."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query
from markupsafe import Markup
from starlette.responses import Response

from heliostat.models import User
from heliostat.services.cluster.usage_reports import (
    UsageReportLine,
    list_report_months,
    monthly_usage_report,
    usage_report_csv,
)
from heliostat.web import formatting
from heliostat.web.rendering import PAGE_HEADERS, PageSpec, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest
from heliostat.web.view_models import PageUrl, SortLink, build_sort_links, parse_sort

router = APIRouter()
SORT_COLUMNS = ("name", "jobs", "gpu_hours", "cpu_hours", "wasted_gpu_hours", "median_wait_seconds")
MonthParam = Annotated[str, Query(max_length=20)]
_MAX_BARS = 8


class ReportGrouping(StrEnum):
    DEPARTMENT = "department"
    PROJECT = "project"
    USER = "user"
    GPU_TYPE = "gpu_type"


@dataclass(frozen=True, slots=True)
class ReportBar:
    name: str
    label: str
    svg: Markup


@dataclass(frozen=True, slots=True)
class ReportsView:
    month: str
    month_title: str
    month_options: tuple[tuple[str, str], ...]
    previous_month_url: str  # empty: no such month
    next_month_url: str
    by: str
    grouping_links: tuple[tuple[str, str], ...]  # name and URL
    csv_url: str
    lines: tuple[UsageReportLine, ...]
    sort_links: Mapping[str, SortLink]
    sort: str
    gpu_hours: float
    wasted_gpu_hours: float
    wasted_fraction: float
    jobs: int
    energy_kwh: float | None  # None: not known
    co2_kg: float | None
    longest_wait: str  # longest mean wait of a row
    bars: tuple[ReportBar, ...]  # of the largest rows
    scope_text: str


@router.get("/reports")
def show_report(
    request: AuthenticatedDep,
    month: MonthParam = "",
    by: ReportGrouping | None = None,
    sort: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    months = list_report_months(request.context)
    chosen, group = month or months[0], by or _group_for(request.user)
    lines = monthly_usage_report(request.context, request.caller, chosen, group.value)
    column, descending = parse_sort(sort, SORT_COLUMNS, "-gpu_hours")
    url = PageUrl("/reports", {"month": chosen, "by": group.value, "sort": sort})
    ordered = sorted(lines, key=lambda line: _key(line, column), reverse=descending)
    view = _view(request, url, ordered, _ReportQuery(chosen, group, months, column, descending))
    return render_page(request, PageSpec("reports.html", "Reports"), view)


@router.get("/reports.csv")
def download_report(
    request: AuthenticatedDep, month: MonthParam = "", by: ReportGrouping = ReportGrouping.PROJECT
) -> Response:
    lines = monthly_usage_report(request.context, request.caller, month or None, by.value)
    filename = f"heliostat-{month or list_report_months(request.context)[0]}-{by.value}.csv"
    headers = PAGE_HEADERS | {"Content-Disposition": f'attachment; filename="{filename}"'}
    return Response(usage_report_csv(lines, by.value), media_type="text/csv; charset=utf-8", headers=headers)


@dataclass(frozen=True, slots=True)
class _ReportQuery:
    month: str
    group: ReportGrouping
    months: Sequence[str]
    column: str
    descending: bool


def _view(
    request: AuthenticatedRequest, url: PageUrl, lines: Sequence[UsageReportLine], report_query: _ReportQuery
) -> ReportsView:
    options = list(dict.fromkeys([*report_query.months, report_query.month]))
    position = options.index(report_query.month)
    hours, wasted = sum(line.gpu_hours for line in lines), sum(line.wasted_gpu_hours for line in lines)
    return ReportsView(
        month=report_query.month,
        month_title=month_title(report_query.month),
        month_options=tuple((month, month_title(month)) for month in options),
        previous_month_url=url.with_query(month=options[position + 1]) if position + 1 < len(options) else "",
        next_month_url=url.with_query(month=options[position - 1]) if position else "",
        by=report_query.group.value,
        grouping_links=tuple((group.value, url.with_query(by=group.value)) for group in ReportGrouping),
        csv_url=PageUrl(
            "/reports.csv", {"month": report_query.month, "by": report_query.group.value}
        ).with_query(),
        lines=tuple(lines),
        sort_links=build_sort_links(url, SORT_COLUMNS, report_query.column, report_query.descending),
        sort=url.query["sort"],
        gpu_hours=hours,
        wasted_gpu_hours=wasted,
        wasted_fraction=wasted / hours if hours else 0.0,
        jobs=sum(line.jobs for line in lines),
        energy_kwh=_sum(line.energy_kwh for line in lines),
        co2_kg=_sum(line.co2_kg for line in lines),
        longest_wait=_longest_wait(lines),
        bars=_bars(lines),
        scope_text=describe_scope(request.user),
    )


def _sum(amounts: Iterable[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def _group_for(user: User) -> ReportGrouping:
    return ReportGrouping.DEPARTMENT if user.is_admin else ReportGrouping.PROJECT


def _key(line: UsageReportLine, column: str) -> tuple[float, float, str]:
    """Sort key: the column, then the name; unknown values are lowest."""
    value = getattr(line, column)
    if isinstance(value, str):
        return 0.0, 0.0, value
    return (0.0, 0.0, line.name) if value is None else (1.0, float(value), line.name)


def month_title(month: str) -> str:
    return f"{_MONTHS[int(month[5:7]) - 1]} {month[:4]}"


_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def _longest_wait(lines: Sequence[UsageReportLine]) -> str:
    waits = [line.mean_wait_seconds for line in lines if line.mean_wait_seconds is not None]
    return formatting.format_duration(max(waits, default=None))


def _bars(lines: Sequence[UsageReportLine]) -> tuple[ReportBar, ...]:
    largest = sorted((line for line in lines if line.gpu_hours > 0), key=lambda line: -line.gpu_hours)[:_MAX_BARS]
    return tuple(_bar(line, largest[0].gpu_hours) for line in largest)


def _bar(line: UsageReportLine, maximum: float) -> ReportBar:
    hours, wasted = line.gpu_hours, line.wasted_gpu_hours
    title = f"{line.name}: {hours:,.1f} GPU-hours, {wasted:,.1f} of them wasted"
    return ReportBar(line.name, f"{hours:,.1f} h", draw_two_part_bar(hours / maximum, wasted / maximum, title))


def describe_scope(user: User) -> str:
    if user.is_admin:
        return "Jobs of all users."
    managed = [one.project for one in user.memberships if user.may_manage(one.project)]
    return f"Your jobs, and all jobs of {', '.join(managed)}." if managed else "Your own jobs."


def draw_two_part_bar(whole: float, part: float, title: str) -> Markup:
    """A bar of length `whole` with `part` at its end, both as fractions (0 … 1) of the full width."""
    width = 100 * min(1.0, max(0.0, whole))
    wasted = min(width, 100 * max(0.0, part))
    return Markup(
        '<svg class="lying" viewBox="0 0 100 10" preserveAspectRatio="none" role="img"><title>{}</title>'
        '<rect class="bar c1" width="{:.2f}" height="10"></rect>'
        '<rect class="bar c2" x="{:.2f}" width="{:.2f}" height="10"></rect></svg>'
    ).format(title, max(0.3, width), width - wasted, wasted)
