"""Sweeps: all of them, and one as a table of what each run got and reported."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from heliostat.models.workflows import Sweep
from heliostat.services.workflows import sweeps as services
from heliostat.services.workflows.sweeps import SweepRun, SweepView
from heliostat.web.rendering import Page, render
from heliostat.web.views import Address, Pager, Sort, pager, parse_sort, sorts
from heliostat.web.visits import VisitDep

router = APIRouter()
Number = Annotated[int, Path(ge=1, le=2**53)]
_SIZE = 200
_SWEEPS = ("Sweeps", "/sweeps")


@dataclass(frozen=True, slots=True)
class ListView:
    sweeps: tuple[tuple[Sweep, str], ...]  # and the names of its parameters
    everybodys: bool
    may_see_others: bool
    older: str


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    more: str = ""  # the best so far, where that is not the last


@dataclass(frozen=True, slots=True)
class RunRow:
    index: int
    job_id: int
    state: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class OneView:
    sweep: Sweep
    columns: tuple[str, ...]
    sorts: dict[str, Sort]
    rows: tuple[RunRow, ...]
    csv: str
    pager: Pager


@router.get("/sweeps")
def show_sweeps(
    visit: VisitDep,
    everybodys: Annotated[bool, Query(alias="all")] = False,
    before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
) -> Response:
    found = services.list_sweeps(visit.context, visit.caller, everybodys=everybodys, before=before)
    manages = visit.user.is_admin or any(visit.user.may_manage(one.project) for one in visit.user.memberships)
    here = Address("/sweeps", {"all": "true"} if everybodys else {})
    older = here.with_(before=found[-1].id) if len(found) == services.PAGE_SIZE else ""
    named = tuple((one, ", ".join(one.table[0]) if one.table else "") for one in found)
    return render(
        visit, Page("sweeps.html", "Sweeps", live=("jobs",)), ListView(named, everybodys, manages, older)
    )


@router.get("/sweeps/{number}.csv")
def download(visit: VisitDep, number: Number, sort: Annotated[str, Query(max_length=100)] = "") -> Response:
    found = services.get_sweep(visit.context, visit.caller, number, sort or None)
    headers = {"Content-Disposition": f'attachment; filename="heliostat-sweep-{number}.csv"'}
    return Response(services.sweep_csv(found), media_type="text/csv; charset=utf-8", headers=headers)


@router.get("/sweeps/{number}")
def show_sweep(
    visit: VisitDep,
    number: Number,
    sort: Annotated[str, Query(max_length=100)] = "",
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
) -> Response:
    found = services.get_sweep(visit.context, visit.caller, number)
    by, descending = parse_sort(sort, services.sort_columns(found), "index")
    chosen = f"-{by}" if descending else by
    found = services.get_sweep(visit.context, visit.caller, number, chosen)
    shown = Page("sweep.html", found.sweep.name, live=("jobs",), crumbs=(_SWEEPS,))
    return render(visit, shown, _view(found, by, descending, page))


def _view(found: SweepView, by: str, descending: bool, page: int) -> OneView:
    sort = f"-{by}" if descending else by
    here = Address(f"/sweeps/{found.sweep.id}", {"sort": sort})
    columns = (*found.parameters, *(name for name in found.metrics if name not in found.parameters))
    runs = found.runs[(page - 1) * _SIZE : page * _SIZE]
    return OneView(
        sweep=found.sweep,
        columns=columns,
        sorts=sorts(here, services.sort_columns(found), by, descending),
        rows=tuple(_row(run, columns) for run in runs),
        csv=Address(f"/sweeps/{found.sweep.id}.csv", {"sort": sort}).with_(),
        pager=pager(here, page, _SIZE, len(found.runs)),
    )


def _row(run: SweepRun, columns: tuple[str, ...]) -> RunRow:
    return RunRow(run.index, run.job.id, run.job.state.value, tuple(_cell(run, name) for name in columns))


def _cell(run: SweepRun, name: str) -> Cell:
    metric = run.metrics.get(name)
    if metric is None:
        return Cell(str(run.values.get(name, "")))
    spread = f"{metric.least:g} to {metric.most:g}" if metric.least != metric.most else ""
    return Cell(f"{metric.value:.6g}", spread)
