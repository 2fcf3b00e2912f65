"""Services: those one may use, and one with its replicas and their health."""

from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter
from starlette.responses import Response

from heliostat.errors import HeliostatError
from heliostat.models.services import ServiceState
from heliostat.models.sessions import ProxyTarget
from heliostat.services.web_services.lifecycle import (
    ReplicaState,
    ServiceView,
    list_services,
    remove_service,
    restart_service,
    scale_service,
    show_service,
    stop_service,
)
from heliostat.services.web_services.routing import may_manage_service, require_service_access
from heliostat.web.rendering import Page, redirect, render
from heliostat.web.visits import FormDep, Visit, VisitDep

router = APIRouter()
_NAME = "/services/{name}"
_ICONS = {
    "waiting": "pending",
    "starting": "starting",
    "healthy": "running",
    "unhealthy": "failed",
    "draining": "preempted",
    "over": "completed",
}


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    user: str
    visibility: str
    word: str  # up, degraded, down, stopped
    icon: str
    healthy: int
    wanted: int
    address: str  # empty: not for this browser


@dataclass(frozen=True, slots=True)
class ServicesView:
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    job_id: int
    word: str
    icon: str
    node: str
    open_requests: int
    healthy_at: datetime | None
    problem: str


@dataclass(frozen=True, slots=True)
class OneView:
    row: Row
    words: str
    project: str
    health: str
    problem: str
    failed_at: datetime | None
    replicas: tuple[ReplicaRow, ...]
    wanted: int
    is_mine: bool
    may_stop: bool
    is_stopped: bool


@router.get("/services")
def show_services(visit: VisitDep) -> Response:
    rows = tuple(_row(visit, one) for one in list_services(visit.context, visit.caller))
    return render(visit, Page("services.html", "Services", live=("services", "jobs")), ServicesView(rows))


@router.get(_NAME)
def show_one(visit: VisitDep, name: str) -> Response:
    shown = show_service(visit.context, visit.caller, name)
    page = Page("service.html", f"Service {name}", live=("services", "jobs"), crumbs=(("Services", "/services"),))
    return render(visit, page, _view(visit, shown))


@router.post(_NAME + "/scale")
def scale(visit: VisitDep, form: FormDep, name: str) -> Response:
    text = form.get("replicas").strip()
    count = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else -1
    scale_service(visit.context, visit.caller, name, count)
    return redirect(visit, f"/services/{name}", f"Service {name} gets {count} replicas.")


@router.post(_NAME + "/restart")
def restart(visit: VisitDep, form: FormDep, name: str) -> Response:
    restart_service(visit.context, visit.caller, name)
    return redirect(visit, f"/services/{name}", "Its replicas are replaced one by one.")


@router.post(_NAME + "/stop")
def stop(visit: VisitDep, form: FormDep, name: str) -> Response:
    stop_service(visit.context, visit.caller, name)
    return redirect(visit, f"/services/{name}", "It ends once its open requests are answered.")


@router.post(_NAME + "/remove")
def remove(visit: VisitDep, form: FormDep, name: str) -> Response:
    remove_service(visit.context, visit.caller, name)
    return redirect(visit, "/services", f"Service {name} is removed.")


def _row(visit: Visit, shown: ServiceView) -> Row:
    one, healthy = shown.service, shown.healthy_count
    word, icon = _word(shown)
    address = _address(visit, one.name) if healthy else ""
    return Row(one.name, one.user, one.visibility.value, word, icon, healthy, one.desired_replicas, address)


def _word(shown: ServiceView) -> tuple[str, str]:
    if shown.service.state is ServiceState.STOPPED:
        return "stopped", "cancelled"
    if shown.healthy_count >= shown.service.desired_replicas:
        return "up", "running"
    return ("degraded", "starting") if shown.healthy_count else ("down", "failed")


def _address(visit: Visit, name: str) -> str:
    try:
        require_service_access(visit.context, visit.user, name)
    except HeliostatError:
        return ""
    seen = visit.context.public_urls.for_host(visit.request.headers.get("host", ""))
    return seen.target_url(ProxyTarget(0, service=name))


def _view(visit: Visit, shown: ServiceView) -> OneView:
    one, is_inside = shown.service, may_manage_service(visit.user, shown.service)
    check = one.check
    how = f"GET {check.path}" if check.path else "it takes a connection"
    return OneView(
        row=_row(visit, shown),
        words=shown.summary,
        project=one.project,
        health=f"{how}, every {check.interval_seconds:g} seconds; out after {check.threshold} failures",
        problem=(one.problem or "") if is_inside else "",
        failed_at=one.failed_at,
        replicas=tuple(_replica(each) for each in shown.replicas) if is_inside else (),
        wanted=one.replicas,
        is_mine=one.user == visit.user.name,
        may_stop=is_inside,
        is_stopped=one.state is ServiceState.STOPPED,
    )


def _replica(each: ReplicaState) -> ReplicaRow:
    node = (each.job.node if each.job else None) or ""
    replica, icon = each.replica, _ICONS[each.status]
    if each.status == "over" and each.job is not None:
        icon = each.job.state.value
    problem = each.problem or ""
    return ReplicaRow(replica.job_id, each.status, icon, node, each.open_requests, replica.healthy_at, problem)
