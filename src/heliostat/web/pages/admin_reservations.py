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
from heliostat.web.admin import ADMIN, Name
from heliostat.web.forms import Filled, Reading, refused
from heliostat.web.rendering import Page, redirect, render
from heliostat.web.views import Confirmation
from heliostat.web.visits import AdminDep, Form, FormDep, Visit

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
    what: str  # whole nodes, or how many GPUs of each
    starts_at: datetime  # the present or next time; of what is over, the last
    ends_at: datetime
    weeks: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReservationsView:
    rows: tuple[ReservationRow, ...]
    past: bool


@dataclass(frozen=True, slots=True)
class NewReservationView:
    form: Filled
    zone: str
    projects: tuple[tuple[str, str], ...]
    nodes: tuple[tuple[str, str], ...]  # name, and what it has
    chosen: tuple[str, ...]


@router.get("/admin/reservations")
def show_reservations(visit: AdminDep, past: bool = False) -> Response:
    now = visit.context.now()
    found = services.list_reservations(visit.context, visit.caller, past=past)
    view = ReservationsView(tuple(_row(one, now) for one in found), past)
    return render(visit, Page("admin/reservations.html", "Reservations", live=("rules",)), view)


@router.get("/admin/new-reservation")
def ask_for_reservation(visit: AdminDep) -> Response:
    zone = visit.context.settings.server.effective_time_zone
    start = visit.context.now().astimezone(ZoneInfo(zone)).replace(minute=0, second=0) + timedelta(hours=1)
    values = {"starts_at": f"{start:%Y-%m-%dT%H:%M}", "ends_at": f"{start + timedelta(hours=2):%Y-%m-%dT%H:%M}"}
    return _new_page(visit, Filled({**values, "weeks": "1"}), ())


@router.post("/admin/new-reservation")
def create_reservation(visit: AdminDep, form: FormDep) -> Response:
    chosen = form.all("node")[:_MOST_NODES]
    try:
        made = services.create_reservation(visit.context, visit.caller, _wish(visit, form, chosen))
    except _WRONG as error:
        return _new_page(visit, refused(form, error, {"nodes": ""}), chosen)
    kind = "maintenance window" if made.project is None else "reservation"
    return redirect(visit, "/admin/reservations", f"The {kind} {made.name} is set.")


@router.post("/admin/reservations/{name}/end")
def end_reservation(visit: AdminDep, name: Name, form: FormDep) -> Response:
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
        return render(visit, Page("confirm.html", "End", crumbs=(ADMIN, _RESERVATIONS)), view)
    services.delete_reservation(visit.context, visit.caller, name)
    return redirect(visit, "/admin/reservations", f"The reservation {name} is over.")


def _wish(visit: Visit, form: Form, nodes: tuple[str, ...]) -> Reservation:
    """Times are as clocks show them in the cluster's zone, which the form says."""
    reading, zone = Reading(form), visit.context.settings.server.effective_time_zone
    wish = Reservation(
        name=reading.line("name", needed=True),
        nodes=nodes,
        starts_at=reading.moment("starts_at", zone),
        ends_at=reading.moment("ends_at", zone),
        project=form.get("project") or None,
        gpus_per_node=reading.whole("gpus_per_node", 1, _MOST_GPUS),
        weeks=reading.whole("weeks", 1, services.MAX_WEEKS) or 1,
        reason=reading.line("reason"),
    )
    if wish.ends_at <= wish.starts_at:
        reading.refuse("ends_at", "must be after the start")
    reading.check()
    return wish


def _new_page(visit: Visit, form: Filled, chosen: tuple[str, ...]) -> Response:
    projects = list_projects(visit.context, visit.caller)
    nodes = visit.context.node_inventory.nodes()
    view = NewReservationView(
        form=form,
        zone=visit.context.settings.server.effective_time_zone,
        projects=(("", "nobody: maintenance"), *((one.name, one.name) for one in projects)),
        nodes=tuple((node.name, f"{node.name} · {_gpus(len(node.devices))}") for node in nodes),
        chosen=chosen,
    )
    page = Page("admin/new-reservation.html", "New reservation", crumbs=(ADMIN, _RESERVATIONS), status=form.status)
    return render(visit, page, view)


def _row(one: Reservation, now: datetime) -> ReservationRow:
    times = list(one.occurrences(now))
    starts_at, ends_at = times[0] if times else (one.starts_at, one.final_end_at)
    return ReservationRow(
        name=one.name,
        state="over" if not times else "now" if starts_at <= now else "to come",
        project=one.project,
        nodes=_some(one.nodes),
        all_nodes=", ".join(one.nodes),
        what="whole nodes" if one.gpus_per_node is None else f"{_gpus(one.gpus_per_node)} of each",
        starts_at=starts_at,
        ends_at=ends_at,
        weeks=f"{len(times)} of {one.weeks} weeks left" if one.weeks > 1 else "",
        reason=one.reason,
    )


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _NAMED_AT_MOST
    return ", ".join(names[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


def _gpus(count: int) -> str:
    return "no GPU" if not count else "1 GPU" if count == 1 else f"{count} GPUs"
