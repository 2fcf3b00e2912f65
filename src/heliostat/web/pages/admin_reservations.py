"""Reservations and maintenance windows, for admins."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from fastapi import APIRouter
from starlette.responses import Response

from heliostat.errors import BadRequest, Conflict, NotFound, safe_repr
from heliostat.models import Reservation
from heliostat.services.accounts.projects import list_projects
from heliostat.services.cluster import reservations as services
from heliostat.web.admin_fields import ADMIN_BREADCRUMB, NameParam
from heliostat.web.forms import FormReader, FormState, form_with_errors
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AdminDep, AuthenticatedRequest, FormDep, SubmittedForm
from heliostat.web.view_models import Confirmation

router = APIRouter()
_RESERVATIONS = ("Reservations", "/admin/reservations")
_WRONG = (BadRequest, Conflict, NotFound)
_MOST_GPUS = 10_000
_MOST_NODES = 10_000
_NAMED_AT_MOST = 6


@dataclass(frozen=True, slots=True)
class ReservationRow:
    name: str
    state: str  # now, to come, over
    project: str | None  # None: maintenance
    nodes: str
    all_nodes: str
    capacity_text: str  # whole nodes, or how many GPUs of each
    starts_at: datetime  # the present or next time; of what is over, the last
    ends_at: datetime
    weeks_text: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReservationsView:
    rows: tuple[ReservationRow, ...]
    includes_past: bool


@dataclass(frozen=True, slots=True)
class NewReservationView:
    form: FormState
    time_zone: str
    projects: tuple[tuple[str, str], ...]
    nodes: tuple[tuple[str, str], ...]  # name, and what it has
    selected_nodes: tuple[str, ...]


@router.get("/admin/reservations")
def show_reservations(visit: AdminDep, past: bool = False) -> Response:
    now = visit.context.now()
    found = services.list_reservations(visit.context, visit.caller, past=past)
    view = ReservationsView(tuple(_row(one, now) for one in found), past)
    return render_page(visit, PageSpec("admin/reservations.html", "Reservations", live_topics=("rules",)), view)


@router.get("/admin/new-reservation")
def show_new_reservation_form(visit: AdminDep) -> Response:
    zone = visit.context.settings.server.effective_time_zone
    start = visit.context.now().astimezone(ZoneInfo(zone)).replace(minute=0, second=0) + timedelta(hours=1)
    values = {"starts_at": f"{start:%Y-%m-%dT%H:%M}", "ends_at": f"{start + timedelta(hours=2):%Y-%m-%dT%H:%M}"}
    return _new_page(visit, FormState({**values, "weeks": "1"}), ())


@router.post("/admin/new-reservation")
def create_reservation(visit: AdminDep, form: FormDep) -> Response:
    chosen = form.get_all("node")[:_MOST_NODES]
    try:
        made = services.create_reservation(visit.context, visit.caller, _wish(visit, form, chosen))
    except _WRONG as error:
        return _new_page(visit, form_with_errors(form, error, {"nodes": ""}), chosen)
    kind = "maintenance window" if made.project is None else "reservation"
    return redirect(visit, "/admin/reservations", f"The {kind} {made.name} is set.")


@router.post("/admin/reservations/{name}/end")
def end_reservation(visit: AdminDep, name: NameParam, form: FormDep) -> Response:
    found = services.list_reservations(visit.context, visit.caller, past=True)
    one = next((one for one in found if one.name == name), None)
    if one is None:
        raise NotFound(f"There is no reservation {safe_repr(name)}.", "It may have been ended already.")
    if form.get("confirmed") != "yes":
        view = Confirmation(
            question=f"End the reservation {name}?",
            consequence="Its nodes are for everybody again at once, in all weeks to come. This cannot be undone.",
            action=f"/admin/reservations/{name}/end",
            label=f"End {name}",
            fields=(("confirmed", "yes"),),
            back="/admin/reservations",
            items=(f"Nodes: {_some(one.nodes)}",),
        )
        return render_page(
            visit, PageSpec("confirmation.html", "End", breadcrumbs=(ADMIN_BREADCRUMB, _RESERVATIONS)), view
        )
    services.delete_reservation(visit.context, visit.caller, name)
    return redirect(visit, "/admin/reservations", f"The reservation {name} is over.")


def _wish(visit: AuthenticatedRequest, form: SubmittedForm, nodes: tuple[str, ...]) -> Reservation:
    """Times are as clocks show them in the cluster's zone, which the form says."""
    reading, zone = FormReader(form), visit.context.settings.server.effective_time_zone
    wish = Reservation(
        name=reading.read_line("name", needed=True),
        nodes=nodes,
        starts_at=reading.read_time("starts_at", zone),
        ends_at=reading.read_time("ends_at", zone),
        project=form.get("project") or None,
        gpus_per_node=reading.read_integer("gpus_per_node", 1, _MOST_GPUS),
        weeks=reading.read_integer("weeks", 1, services.MAX_WEEKS) or 1,
        reason=reading.read_line("reason"),
    )
    if wish.ends_at <= wish.starts_at:
        reading.add_error("ends_at", "must be after the start")
    reading.raise_if_invalid()
    return wish


def _new_page(visit: AuthenticatedRequest, form: FormState, chosen: tuple[str, ...]) -> Response:
    projects = list_projects(visit.context, visit.caller)
    nodes = visit.context.node_inventory.nodes()
    view = NewReservationView(
        form=form,
        time_zone=visit.context.settings.server.effective_time_zone,
        projects=(("", "nobody: maintenance"), *((one.name, one.name) for one in projects)),
        nodes=tuple((node.name, f"{node.name} · {_gpus(len(node.devices))}") for node in nodes),
        selected_nodes=chosen,
    )
    page = PageSpec(
        "admin/new_reservation.html",
        "New reservation",
        breadcrumbs=(ADMIN_BREADCRUMB, _RESERVATIONS),
        status=form.status,
    )
    return render_page(visit, page, view)


def _row(one: Reservation, now: datetime) -> ReservationRow:
    times = list(one.occurrences(now))
    starts_at, ends_at = times[0] if times else (one.starts_at, one.final_end_at)
    return ReservationRow(
        name=one.name,
        state="over" if not times else "now" if starts_at <= now else "to come",
        project=one.project,
        nodes=_some(one.nodes),
        all_nodes=", ".join(one.nodes),
        capacity_text="whole nodes" if one.gpus_per_node is None else f"{_gpus(one.gpus_per_node)} of each",
        starts_at=starts_at,
        ends_at=ends_at,
        weeks_text=f"{len(times)} of {one.weeks} weeks left" if one.weeks > 1 else "",
        reason=one.reason,
    )


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _NAMED_AT_MOST
    return ", ".join(names[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


def _gpus(count: int) -> str:
    return "no GPU" if not count else "1 GPU" if count == 1 else f"{count} GPUs"
