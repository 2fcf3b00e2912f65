"""Page that shows the differences between two jobs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from heliostat.errors import HeliostatError
from heliostat.models.provenance import COMPARISON_SECTIONS
from heliostat.services.jobs.comparison import Comparison, Difference, compare_jobs
from heliostat.web import formatting
from heliostat.web.rendering import PageSpec, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest

router = APIRouter()
JobIdText = Annotated[str, Query(max_length=20)]


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    field: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class DifferenceSection:
    title: str
    differences: tuple[DifferenceRow, ...]


@dataclass(frozen=True, slots=True)
class JobComparisonView:
    a: str  # as entered
    b: str
    error: str = ""
    sections: tuple[DifferenceSection, ...] = ()
    identical_sections: tuple[str, ...] = ()
    is_compared: bool = False


@router.get("/compare")
def show_comparison(request: AuthenticatedDep, a: JobIdText = "", b: JobIdText = "") -> Response:
    page = PageSpec("job_comparison.html", "Compare jobs", breadcrumbs=(("Jobs", "/jobs"),))
    return render_page(request, page, _view(request, a.strip(), b.strip()))


def _view(request: AuthenticatedRequest, a: str, b: str) -> JobComparisonView:
    if not a or not b:
        return JobComparisonView(a, b)
    if not all(difference.isascii() and difference.isdecimal() and len(difference) <= 15 for difference in (a, b)):
        return JobComparisonView(a, b, error="Enter the IDs of two jobs.")
    try:
        compared = compare_jobs(request.context, request.caller, int(a), int(b))
    except HeliostatError as error:
        return JobComparisonView(a, b, error=f"{error.message} {error.hint or ''}".strip())
    identical = tuple(COMPARISON_SECTIONS[name] for name in compared.same)
    return JobComparisonView(
        a, b, sections=tuple(_sections(compared)), identical_sections=identical, is_compared=True
    )


def _sections(compared: Comparison) -> list[DifferenceSection]:
    by_name = {
        name: [difference for difference in compared.differences if difference.section == name]
        for name in COMPARISON_SECTIONS
    }
    return [
        DifferenceSection(COMPARISON_SECTIONS[name], tuple(map(_row, differences)))
        for name, differences in by_name.items()
        if differences
    ]


_UNITS: dict[str, Callable[[float], str]] = {
    "_mib": formatting.format_size,
    "_seconds": formatting.format_duration,
}


def _row(difference: Difference) -> DifferenceRow:
    """Fields in words, amounts with their units; names of variables stay as they are."""
    field, first, second = difference.field, difference.first, difference.second
    if difference.section == "environment":
        return DifferenceRow(field, first, second)
    for suffix, format_amount in _UNITS.items():
        if field.endswith(suffix):
            field, first, second = (
                field.removesuffix(suffix),
                *(_amount(t, format_amount) for t in (first, second)),
            )
    return DifferenceRow(_LABELS.get(field, field.replace("_", " ")), first, second)


_LABELS = {"gpus": "GPUs", "cpus": "CPUs", "gpu_type": "GPU type", "ran": "run time", "waited": "wait time"}


def _amount(text: str, format_amount: Callable[[float], str]) -> str:
    try:
        return format_amount(float(text))
    except ValueError:
        return text
