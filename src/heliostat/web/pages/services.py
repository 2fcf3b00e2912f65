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
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest, FormDep

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
class ServiceRow:
    name: str
    user: str
    visibility: str
    status: str  # up, degraded, down, stopped
    icon: str
    healthy: int
    desired: int
    url: str  # empty: not for this browser


@dataclass(frozen=True, slots=True)
class ServicesView:
    rows: tuple[ServiceRow, ...]


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    job_id: int
    status: str
    icon: str
    node: str
    open_requests: int
    healthy_at: datetime | None
    problem: str


@dataclass(frozen=True, slots=True)
class ServiceDetailView:
    row: ServiceRow
    summary: str
    project: str
    health_check_text: str
    problem: str
    failed_at: datetime | None
    replicas: tuple[ReplicaRow, ...]
    desired_replicas: int
    is_mine: bool
    may_stop: bool
    is_stopped: bool


@router.get("/services")
def show_services(visit: AuthenticatedDep) -> Response:
    rows = tuple(_row(visit, one) for one in list_services(visit.context, visit.caller))
    return render_page(
        visit, PageSpec("services.html", "Services", live_topics=("services", "jobs")), ServicesView(rows)
    )


@router.get(_NAME)
def show_service_page(visit: AuthenticatedDep, name: str) -> Response:
    shown = show_service(visit.context, visit.caller, name)
    page = PageSpec(
        "service.html",
        f"Service {name}",
        live_topics=("services", "jobs"),
        breadcrumbs=(("Services", "/services"),),
    )
    return render_page(visit, page, _view(visit, shown))


@router.post(_NAME + "/scale")
def scale(visit: AuthenticatedDep, form: FormDep, name: str) -> Response:
    text = form.get("replicas").strip()
    count = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else -1
    scale_service(visit.context, visit.caller, name, count)
    return redirect(visit, f"/services/{name}", f"Service {name} gets {count} replicas.")


@router.post(_NAME + "/restart")
def restart(visit: AuthenticatedDep, form: FormDep, name: str) -> Response:
    restart_service(visit.context, visit.caller, name)
    return redirect(visit, f"/services/{name}", "Its replicas are replaced one by one.")


@router.post(_NAME + "/stop")
def stop(visit: AuthenticatedDep, form: FormDep, name: str) -> Response:
    stop_service(visit.context, visit.caller, name)
    return redirect(visit, f"/services/{name}", "It ends once its open requests are answered.")


@router.post(_NAME + "/remove")
def remove(visit: AuthenticatedDep, form: FormDep, name: str) -> Response:
    remove_service(visit.context, visit.caller, name)
    return redirect(visit, "/services", f"Service {name} is removed.")


def _row(visit: AuthenticatedRequest, shown: ServiceView) -> ServiceRow:
    one, healthy = shown.service, shown.healthy_count
    word, icon = _word(shown)
    address = _address(visit, one.name) if healthy else ""
    return ServiceRow(one.name, one.user, one.visibility.value, word, icon, healthy, one.desired_replicas, address)


def _word(shown: ServiceView) -> tuple[str, str]:
    if shown.service.state is ServiceState.STOPPED:
        return "stopped", "cancelled"
    if shown.healthy_count >= shown.service.desired_replicas:
        return "up", "running"
    return ("degraded", "starting") if shown.healthy_count else ("down", "failed")


def _address(visit: AuthenticatedRequest, name: str) -> str:
    try:
        require_service_access(visit.context, visit.user, name)
    except HeliostatError:
        return ""
    seen = visit.context.public_urls.for_host(visit.request.headers.get("host", ""))
    return seen.target_url(ProxyTarget(0, service=name))


def _view(visit: AuthenticatedRequest, shown: ServiceView) -> ServiceDetailView:
    one, is_inside = shown.service, may_manage_service(visit.user, shown.service)
    check = one.check
    how = f"GET {check.path}" if check.path else "it takes a connection"
    return ServiceDetailView(
        row=_row(visit, shown),
        summary=shown.summary,
        project=one.project,
        health_check_text=f"{how}, every {check.interval_seconds:g} seconds; out after {check.threshold} failures",
        problem=(one.problem or "") if is_inside else "",
        failed_at=one.failed_at,
        replicas=tuple(_replica(each) for each in shown.replicas) if is_inside else (),
        desired_replicas=one.replicas,
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
