"""From the control plane to the proxy, and the ports of a job."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import RedirectResponse, Response

from heliostat.errors import HeliostatError, NotFound
from heliostat.models.sessions import ProxyTarget, parse_proxy_target
from heliostat.services.proxy_routes import create_entry_code, open_port, require_target_access
from heliostat.services.public_urls import PublicUrls
from heliostat.services.web_services.routing import create_service_entry_code, require_service_access
from heliostat.web.rendering import PAGE_HEADERS, PageSpec, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest
from heliostat.web.view_models import JOB_ID_PATH

router = APIRouter()
_LONGEST_GOAL = 8000


@dataclass(frozen=True, slots=True)
class JobPortView:
    job_id: int
    port: str
    url: str = ""
    error: str = ""
    hint: str = ""


@router.get("/enter/{name}")
def issue_entry_code(
    visit: AuthenticatedDep,
    name: str,
    nonce: Annotated[str, Query(pattern="^[0-9a-f]{64}$")],
    next: Annotated[str, Query(max_length=_LONGEST_GOAL)] = "",  # noqa: A002 - as it stands in the address
) -> Response:
    """The proxy has sent a browser here that it does not know. `nonce` ties the code to that browser."""
    target = _target(name)
    make_code = create_service_entry_code if target.service else create_entry_code
    code = make_code(visit.context, visit.user, target, nonce, visit.browser.login.id)
    return RedirectResponse(_addresses(visit).entry_url(target, code, next), 303, PAGE_HEADERS)


@router.get("/open/{name}")
def redirect_to_target(visit: AuthenticatedDep, name: str) -> Response:
    target = _target(name)
    if target.service:
        require_service_access(visit.context, visit.user, target.service)
    else:
        require_target_access(visit.context, visit.user, target)
    return RedirectResponse(_addresses(visit).target_url(target), 303, PAGE_HEADERS)


@router.get("/jobs/" + JOB_ID_PATH + "/port")
def show_port(visit: AuthenticatedDep, job_id: int, port: Annotated[str, Query(max_length=10)] = "") -> Response:
    """A link rather than a redirect: forms of ours may lead to no other origin."""
    crumbs = (("Jobs", "/jobs"), (f"Job {job_id}", f"/jobs/{job_id}"))
    require_target_access(visit.context, visit.user, ProxyTarget(job_id))
    view, status = _port_view(visit, job_id, port.strip())
    return render_page(
        visit, PageSpec("job_port.html", f"Port of job {job_id}", breadcrumbs=crumbs, status=status), view
    )


def _port_view(visit: AuthenticatedRequest, job_id: int, port: str) -> tuple[JobPortView, int]:
    if not port:
        return JobPortView(job_id, ""), 200
    number = int(port) if port.isascii() and port.isdecimal() else 0
    try:
        target = open_port(visit.context, visit.caller, job_id, number)
    except HeliostatError as error:
        return JobPortView(job_id, port, error=error.message, hint=error.hint or ""), error.status
    return JobPortView(job_id, port, _addresses(visit).target_url(target)), 200


def _target(name: str) -> ProxyTarget:
    target = parse_proxy_target(name)
    if target is None:
        raise NotFound("There is no such session.", "Go back and open it from its page.")
    return target


def _addresses(visit: AuthenticatedRequest) -> PublicUrls:
    return visit.context.public_urls.for_host(visit.request.headers.get("host", ""))
