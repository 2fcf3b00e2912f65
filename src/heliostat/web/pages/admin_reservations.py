"""Admin pages: reservations and maintenance windows."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from fastapi import APIRouter
from starlette.responses import Response

from heliostat.errors import BadRequest, Conflict, NotFound, safe_repr
from heliostat.models import Node, Reservation
from heliostat.models.gpu_types import is_slice
from heliostat.models.reservations import MAX_RESERVATION_WEEKS
from heliostat.services.accounts.projects import list_projects
from heliostat.services.cluster import reservations as services
from heliostat.web.admin_fields import ADMIN_BREADCRUMB, NameParam
from heliostat.web.forms import FormReader, FormState, form_with_errors
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AdminDep, AuthenticatedRequest, FormDep, SubmittedForm
from heliostat.web.view_models import Confirmation

router = APIRouter()
_RESERVATIONS = ("Reservations", "/admin/reservations")
_FORM_ERRORS = (BadRequest, Conflict, NotFound)
_MAX_GPUS = 10_000
_MAX_NODES = 10_000
_MAX_NAMED = 6


@dataclass(frozen=True, slots=True)
class ReservationRow:
    name: str
    state: str  # now, upcoming, ended
    project: str | None  # None: maintenance
    nodes: str
    all_nodes: str
    capacity_text: str  # whole nodes, or GPUs per node
    starts_at: datetime  # the current or next occurrence; after the end, the last one
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
    nodes: tuple[tuple[str, str], ...]  # name and label
    selected_nodes: tuple[str, ...]


@router.get("/admin/reservations")
def show_reservations(request: AdminDep, past: bool = False) -> Response:
    now = request.context.now()
    reservations = services.list_reservations(request.context, request.caller, past=past)
    view = ReservationsView(tuple(_row(reservation, now) for reservation in reservations), past)
    return render_page(request, PageSpec("admin/reservations.html", "Reservations", live_topics=("rules",)), view)


@router.get("/admin/new-reservation")
def show_new_reservation_form(request: AdminDep) -> Response:
    zone = request.context.settings.server.effective_time_zone
    start = request.context.now().astimezone(ZoneInfo(zone)).replace(minute=0, second=0) + timedelta(hours=1)
    values = {"starts_at": f"{start:%Y-%m-%dT%H:%M}", "ends_at": f"{start + timedelta(hours=2):%Y-%m-%dT%H:%M}"}
    return _new_page(request, FormState({**values, "weeks": "1"}), ())


@router.post("/admin/new-reservation")
def create_reservation(request: AdminDep, form: FormDep) -> Response:
    selected_nodes = form.get_all("node")[:_MAX_NODES]
    try:
        created = services.create_reservation(
            request.context, request.caller, _read_reservation(request, form, selected_nodes)
        )
    except _FORM_ERRORS as error:
        return _new_page(request, form_with_errors(form, error, {"nodes": ""}), selected_nodes)
    kind = "Maintenance window" if created.project is None else "Reservation"
    message, jobs = f"{kind} {created.name} created.", services.find_jobs_running_into(request.context, created)
    if jobs:
        shown = ", ".join(f"{job.id} ({job.user})" for job in jobs[:_MAX_NAMED])
        more = f" and {len(jobs) - _MAX_NAMED} more" if len(jobs) > _MAX_NAMED else ""
        message += f" It stops no job, and these may still run when it begins: {shown}{more}."
    return redirect(request, "/admin/reservations", message, "note" if jobs else "good")


@router.post("/admin/reservations/{name}/end")
def end_reservation(request: AdminDep, name: NameParam, form: FormDep) -> Response:
    reservations = services.list_reservations(request.context, request.caller, past=True)
    reservation = next((reservation for reservation in reservations if reservation.name == name), None)
    if reservation is None:
        raise NotFound(f"Reservation {safe_repr(name)} does not exist.", "It may already have ended.")
    if form.get("confirmed") != "yes":
        view = Confirmation(
            question=f"End reservation {name}?",
            consequence="Its nodes are available to all users again, also in later weeks. This cannot be undone.",
            action=f"/admin/reservations/{name}/end",
            label=f"End {name}",
            fields=(("confirmed", "yes"),),
            back="/admin/reservations",
            items=(f"Nodes: {_shorten(reservation.nodes)}",),
        )
        return render_page(
            request, PageSpec("confirmation.html", "End", breadcrumbs=(ADMIN_BREADCRUMB, _RESERVATIONS)), view
        )
    services.delete_reservation(request.context, request.caller, name)
    return redirect(request, "/admin/reservations", f"Reservation {name} ended.")


def _read_reservation(request: AuthenticatedRequest, form: SubmittedForm, nodes: tuple[str, ...]) -> Reservation:
    """Times of the form are in the time zone of the cluster."""
    reader, zone = FormReader(form), request.context.settings.server.effective_time_zone
    reservation = Reservation(
        name=reader.read_line("name", required=True),
        nodes=nodes,
        starts_at=reader.read_time("starts_at", zone),
        ends_at=reader.read_time("ends_at", zone),
        project=form.get("project") or None,
        gpus_per_node=reader.read_integer("gpus_per_node", 1, _MAX_GPUS),
        weeks=reader.read_integer("weeks", 1, MAX_RESERVATION_WEEKS) or 1,
        reason=reader.read_line("reason"),
    )
    if reservation.ends_at <= reservation.starts_at:
        reader.add_error("ends_at", "must be after the start")
    reader.raise_if_invalid()
    return reservation


def _new_page(request: AuthenticatedRequest, form: FormState, selected_nodes: tuple[str, ...]) -> Response:
    projects = list_projects(request.context, request.caller)
    nodes = request.context.node_inventory.nodes()
    view = NewReservationView(
        form=form,
        time_zone=request.context.settings.server.effective_time_zone,
        projects=(
            ("", "maintenance"),
            *((reservation.name, reservation.name) for reservation in projects),
        ),
        nodes=tuple((node.name, f"{node.name} · {_format_gpus(_count_gpus(node))}") for node in nodes),
        selected_nodes=selected_nodes,
    )
    page = PageSpec(
        "admin/new_reservation.html",
        "New reservation",
        breadcrumbs=(ADMIN_BREADCRUMB, _RESERVATIONS),
        status=form.status,
    )
    return render_page(request, page, view)


def _row(reservation: Reservation, now: datetime) -> ReservationRow:
    times = list(reservation.occurrences(now))
    starts_at, ends_at = times[0] if times else (reservation.starts_at, reservation.final_end_at)
    return ReservationRow(
        name=reservation.name,
        state="ended" if not times else "now" if starts_at <= now else "upcoming",
        project=reservation.project,
        nodes=_shorten(reservation.nodes),
        all_nodes=", ".join(reservation.nodes),
        capacity_text="whole nodes"
        if reservation.gpus_per_node is None
        else f"{_format_gpus(reservation.gpus_per_node)} per node",
        starts_at=starts_at,
        ends_at=ends_at,
        weeks_text=f"{len(times)} of {reservation.weeks} weeks left" if reservation.weeks > 1 else "",
        reason=reservation.reason,
    )


def _shorten(names: tuple[str, ...]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def _count_gpus(node: Node) -> int:
    """Without MIG slices, which are reserved only with the whole node."""
    return sum(not is_slice(device.type) for device in node.devices)


def _format_gpus(count: int) -> str:
    return "no GPUs" if not count else "1 GPU" if count == 1 else f"{count} GPUs"
