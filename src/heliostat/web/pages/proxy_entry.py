"""Entry to the proxy: entry codes, redirects to sessions and services, and the page to open a port of a job."""

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
_MAX_NEXT_LENGTH = 8000


@dataclass(frozen=True, slots=True)
class JobPortView:
    job_id: int
    port: str
    url: str = ""
    error: str = ""
    hint: str = ""


@router.get("/enter/{name}")
def issue_entry_code(
    request: AuthenticatedDep,
    name: str,
    nonce: Annotated[str, Query(pattern="^[0-9a-f]{64}$")],
    next: Annotated[str, Query(max_length=_MAX_NEXT_LENGTH)] = "",  # noqa: A002 - name of the query parameter
) -> Response:
    """The proxy redirects a browser without a cookie here. `nonce` binds the code to that browser."""
    target = _target(name)
    make_code = create_service_entry_code if target.service else create_entry_code
    code = make_code(request.context, request.user, target, nonce, request.browser.login.id)
    return RedirectResponse(_public_urls(request).entry_url(target, code, next), 303, PAGE_HEADERS)


@router.get("/open/{name}")
def redirect_to_target(request: AuthenticatedDep, name: str) -> Response:
    target = _target(name)
    if target.service:
        require_service_access(request.context, request.user, target.service)
    else:
        require_target_access(request.context, request.user, target)
    return RedirectResponse(_public_urls(request).target_url(target), 303, PAGE_HEADERS)


@router.get("/jobs/" + JOB_ID_PATH + "/port")
def show_port(request: AuthenticatedDep, job_id: int, port: Annotated[str, Query(max_length=10)] = "") -> Response:
    """Shows a link instead of a redirect: the CSP does not allow forms to lead to another origin."""
    breadcrumbs = (("Jobs", "/jobs"), (f"Job {job_id}", f"/jobs/{job_id}"))
    require_target_access(request.context, request.user, ProxyTarget(job_id))
    view, status = _port_view(request, job_id, port.strip())
    return render_page(
        request, PageSpec("job_port.html", f"Port of job {job_id}", breadcrumbs=breadcrumbs, status=status), view
    )


def _port_view(request: AuthenticatedRequest, job_id: int, port: str) -> tuple[JobPortView, int]:
    if not port:
        return JobPortView(job_id, ""), 200
    number = int(port) if port.isascii() and port.isdecimal() else 0
    try:
        target = open_port(request.context, request.caller, job_id, number)
    except HeliostatError as error:
        return JobPortView(job_id, port, error=error.message, hint=error.hint or ""), error.status
    return JobPortView(job_id, port, _public_urls(request).target_url(target)), 200


def _target(name: str) -> ProxyTarget:
    target = parse_proxy_target(name)
    if target is None:
        raise NotFound("The session or service does not exist.", "Go back and open it from its page.")
    return target


def _public_urls(request: AuthenticatedRequest) -> PublicUrls:
    return request.context.public_urls.for_host(request.http.headers.get("host", ""))
