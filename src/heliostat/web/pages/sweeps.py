"""Pages of sweeps: the list, and one sweep as a table of parameters and metrics."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from heliostat.models.workflows import Sweep
from heliostat.services.workflows import sweeps as services
from heliostat.services.workflows.sweeps import SweepRun, SweepView
from heliostat.web.rendering import PageSpec, render_page
from heliostat.web.request_context import AuthenticatedDep
from heliostat.web.view_models import Pager, PageUrl, SortLink, build_pager, build_sort_links, parse_sort

router = APIRouter()
SweepId = Annotated[int, Path(ge=1, le=2**53)]
_SIZE = 200
_SWEEPS = ("Sweeps", "/sweeps")


@dataclass(frozen=True, slots=True)
class SweepsView:
    sweeps: tuple[tuple[Sweep, str], ...]  # with the names of its parameters
    shows_all_users: bool
    may_show_all_users: bool
    older_url: str


@dataclass(frozen=True, slots=True)
class SweepCell:
    text: str
    range_text: str = ""  # minimum and maximum, if they differ


@dataclass(frozen=True, slots=True)
class SweepRunRow:
    index: int
    job_id: int
    state: str
    cells: tuple[SweepCell, ...]


@dataclass(frozen=True, slots=True)
class SweepDetailView:
    sweep: Sweep
    columns: tuple[str, ...]
    sort_links: dict[str, SortLink]
    rows: tuple[SweepRunRow, ...]
    csv_url: str
    pager: Pager


@router.get("/sweeps")
def show_sweeps(
    request: AuthenticatedDep,
    all_users: Annotated[bool, Query(alias="all")] = False,
    before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
) -> Response:
    found = services.list_sweeps(request.context, request.caller, all_users=all_users, before=before)
    manages = request.user.is_admin or any(
        request.user.may_manage(one.project) for one in request.user.memberships
    )
    url = PageUrl("/sweeps", {"all": "true"} if all_users else {})
    older_url = url.with_query(before=found[-1].id) if len(found) == services.PAGE_SIZE else ""
    with_parameters = tuple((one, ", ".join(one.table[0]) if one.table else "") for one in found)
    return render_page(
        request,
        PageSpec("sweeps.html", "Sweeps", live_topics=("jobs",)),
        SweepsView(with_parameters, all_users, manages, older_url),
    )


@router.get("/sweeps/{number}.csv")
def download_csv(
    request: AuthenticatedDep, number: SweepId, sort: Annotated[str, Query(max_length=100)] = ""
) -> Response:
    found = services.get_sweep(request.context, request.caller, number, sort or None)
    headers = {"Content-Disposition": f'attachment; filename="heliostat-sweep-{number}.csv"'}
    return Response(services.sweep_csv(found), media_type="text/csv; charset=utf-8", headers=headers)


@router.get("/sweeps/{number}")
def show_sweep(
    request: AuthenticatedDep,
    number: SweepId,
    sort: Annotated[str, Query(max_length=100)] = "",
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
) -> Response:
    found = services.get_sweep(request.context, request.caller, number)
    by, descending = parse_sort(sort, services.sort_columns(found), "index")
    sort_key = f"-{by}" if descending else by
    found = services.get_sweep(request.context, request.caller, number, sort_key)
    shown = PageSpec("sweep.html", found.sweep.name, live_topics=("jobs",), breadcrumbs=(_SWEEPS,))
    return render_page(request, shown, _view(found, by, descending, page))


def _view(found: SweepView, by: str, descending: bool, page: int) -> SweepDetailView:
    sort = f"-{by}" if descending else by
    url = PageUrl(f"/sweeps/{found.sweep.id}", {"sort": sort})
    columns = (*found.parameters, *(name for name in found.metrics if name not in found.parameters))
    runs = found.runs[(page - 1) * _SIZE : page * _SIZE]
    return SweepDetailView(
        sweep=found.sweep,
        columns=columns,
        sort_links=build_sort_links(url, services.sort_columns(found), by, descending),
        rows=tuple(_row(run, columns) for run in runs),
        csv_url=PageUrl(f"/sweeps/{found.sweep.id}.csv", {"sort": sort}).with_query(),
        pager=build_pager(url, page, _SIZE, len(found.runs)),
    )


def _row(run: SweepRun, columns: tuple[str, ...]) -> SweepRunRow:
    return SweepRunRow(run.index, run.job.id, run.job.state.value, tuple(_cell(run, name) for name in columns))


def _cell(run: SweepRun, name: str) -> SweepCell:
    metric = run.metrics.get(name)
    if metric is None:
        return SweepCell(str(run.values.get(name, "")))
    range_text = f"{metric.least:g} to {metric.most:g}" if metric.least != metric.most else ""
    return SweepCell(f"{metric.value:.6g}", range_text)
