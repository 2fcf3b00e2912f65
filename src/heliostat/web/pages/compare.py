"""What differed between two jobs."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from heliostat.errors import HeliostatError
from heliostat.models.provenance import COMPARISON_SECTIONS
from heliostat.services.jobs.comparison import Comparison, Difference, compare_jobs
from heliostat.web.rendering import Page, render
from heliostat.web.visits import Visit, VisitDep

router = APIRouter()
Number = Annotated[str, Query(max_length=20)]


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class CompareView:
    a: str  # as they were typed
    b: str
    trouble: str = ""
    sections: tuple[Section, ...] = ()
    same: tuple[str, ...] = ()
    is_compared: bool = False


@router.get("/compare")
def show_comparison(visit: VisitDep, a: Number = "", b: Number = "") -> Response:
    page = Page("compare.html", "Compare jobs", crumbs=(("Jobs", "/jobs"),))
    return render(visit, page, _view(visit, a.strip(), b.strip()))


def _view(visit: Visit, a: str, b: str) -> CompareView:
    if not a or not b:
        return CompareView(a, b)
    if not all(one.isascii() and one.isdecimal() and len(one) <= 15 for one in (a, b)):
        return CompareView(a, b, trouble="Write the numbers of two jobs.")
    try:
        compared = compare_jobs(visit.context, visit.caller, int(a), int(b))
    except HeliostatError as error:
        return CompareView(a, b, trouble=f"{error.message} {error.hint or ''}".strip())
    same = tuple(COMPARISON_SECTIONS[name] for name in compared.same)
    return CompareView(a, b, sections=tuple(_sections(compared)), same=same, is_compared=True)


def _sections(compared: Comparison) -> list[Section]:
    by_name = {name: [one for one in compared.differences if one.section == name] for name in COMPARISON_SECTIONS}
    return [Section(COMPARISON_SECTIONS[name], tuple(found)) for name, found in by_name.items() if found]
