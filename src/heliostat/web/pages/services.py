"""Pages of services: the list, and one service with its replicas and their health."""

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
from heliostat.web.formatting import format_count
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
    url: str  # empty: no access


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
def show_services(request: AuthenticatedDep) -> Response:
    rows = tuple(_row(request, service) for service in list_services(request.context, request.caller))
    return render_page(
        request, PageSpec("services.html", "Services", live_topics=("services", "jobs")), ServicesView(rows)
    )


@router.get(_NAME)
def show_service_page(request: AuthenticatedDep, name: str) -> Response:
    shown = show_service(request.context, request.caller, name)
    page = PageSpec(
        "service.html",
        f"Service {name}",
        live_topics=("services", "jobs"),
        breadcrumbs=(("Services", "/services"),),
    )
    return render_page(request, page, _view(request, shown))


@router.post(_NAME + "/scale")
def scale(request: AuthenticatedDep, form: FormDep, name: str) -> Response:
    text = form.get("replicas").strip()
    count = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else -1
    scale_service(request.context, request.caller, name, count)
    return redirect(request, f"/services/{name}", f"Service {name} scaled to {format_count(count, 'replica')}.")


@router.post(_NAME + "/restart")
def restart(request: AuthenticatedDep, form: FormDep, name: str) -> Response:
    restart_service(request.context, request.caller, name)
    return redirect(request, f"/services/{name}", "Replicas are being replaced one by one.")


@router.post(_NAME + "/stop")
def stop(request: AuthenticatedDep, form: FormDep, name: str) -> Response:
    stop_service(request.context, request.caller, name)
    return redirect(request, f"/services/{name}", "The service stops after its open requests.")


@router.post(_NAME + "/remove")
def remove(request: AuthenticatedDep, form: FormDep, name: str) -> Response:
    remove_service(request.context, request.caller, name)
    return redirect(request, "/services", f"Service {name} removed.")


def _row(request: AuthenticatedRequest, shown: ServiceView) -> ServiceRow:
    service, healthy = shown.service, shown.healthy_count
    status, icon = _status(shown)
    url = _service_url(request, service.name) if healthy else ""
    return ServiceRow(
        service.name, service.user, service.visibility.value, status, icon, healthy, service.desired_replicas, url
    )


def _status(shown: ServiceView) -> tuple[str, str]:
    if shown.service.state is ServiceState.STOPPED:
        return "stopped", "cancelled"
    if shown.healthy_count >= shown.service.desired_replicas:
        return "up", "running"
    return ("degraded", "starting") if shown.healthy_count else ("down", "failed")


def _service_url(request: AuthenticatedRequest, name: str) -> str:
    try:
        require_service_access(request.context, request.user, name)
    except HeliostatError:
        return ""
    urls = request.context.public_urls.for_host(request.http.headers.get("host", ""))
    return urls.target_url(ProxyTarget(0, service=name))


def _view(request: AuthenticatedRequest, shown: ServiceView) -> ServiceDetailView:
    service, may_manage = shown.service, may_manage_service(request.user, shown.service)
    check = service.check
    check_text = f"GET {check.path}" if check.path else "TCP connection"
    return ServiceDetailView(
        row=_row(request, shown),
        summary=shown.summary,
        project=service.project,
        health_check_text=(
            f"{check_text} every {check.interval_seconds:g} s, unhealthy after {check.threshold} failures"
        ),
        problem=(service.problem or "") if may_manage else "",
        failed_at=service.failed_at,
        replicas=tuple(_replica(state) for state in shown.replicas) if may_manage else (),
        desired_replicas=service.replicas,
        is_mine=service.user == request.user.name,
        may_stop=may_manage,
        is_stopped=service.state is ServiceState.STOPPED,
    )


def _replica(state: ReplicaState) -> ReplicaRow:
    node = (state.job.node if state.job else None) or ""
    replica, icon = state.replica, _ICONS[state.status]
    if state.status == "over" and state.job is not None:
        icon = state.job.state.value
    problem = state.problem or ""
    return ReplicaRow(replica.job_id, state.status, icon, node, state.open_requests, replica.healthy_at, problem)
