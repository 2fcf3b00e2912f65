"""In and out."""

from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from heliostat.errors import Forbidden, NotAuthenticated, TooManyRequests
from heliostat.services.accounts import web_logins
from heliostat.services.accounts.web_logins import BrowserClient
from heliostat.web import cookies
from heliostat.web.error_pages import safe_redirect_path
from heliostat.web.rendering import PAGE_HEADERS, PageSpec, render_page
from heliostat.web.request_context import (
    AnonymousDep,
    AnonymousRequest,
    AuthenticatedDep,
    FormDep,
    client_address,
    identify_request,
)

router = APIRouter()


@dataclass(frozen=True, slots=True)
class LoginView:
    next: str
    name: str = ""
    problem: str = ""
    hint: str = ""


@router.get("/login")
def show_login(guest: AnonymousDep, next: str = "/") -> Response:  # noqa: A002 - as it stands in the address
    if not isinstance(identify_request(guest.request), AnonymousRequest):
        return RedirectResponse(safe_redirect_path(next), 303, PAGE_HEADERS)
    return _page(guest, LoginView(safe_redirect_path(next)))


@router.post("/login")
def log_in(guest: AnonymousDep, form: FormDep) -> Response:
    name, goal = form.get("name"), safe_redirect_path(form.get("next", "/"))
    try:
        secret = web_logins.log_in_browser(guest.context, name, form.get_raw("password"), _origin(guest.request))
    except (NotAuthenticated, TooManyRequests, Forbidden) as error:
        return _page(guest, LoginView(goal, name[:64], error.message, error.hint or ""), error.status)
    return _enter(guest.request, secret, goal)


@router.get("/login/link")
async def log_in_by_link(request: Request, code: str = "", next: str = "/") -> Response:  # noqa: A002
    """The address that `helio web` prints. It is followed by hand or by a terminal, never from another site."""
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Forbidden("This link does not work from another site.", "Copy it into the address bar yourself.")
    context = request.app.state.context
    secret = await run_in_threadpool(web_logins.log_in_browser_by_code, context, code[:100], _origin(request))
    return _enter(request, secret, safe_redirect_path(next))


@router.post("/logout")
def log_out(visit: AuthenticatedDep, form: FormDep) -> Response:
    if form.get("everywhere") == "yes":
        web_logins.log_out_all_browsers(visit.context, visit.caller)
    else:
        web_logins.log_out_browser(visit.context, visit.browser)
    response = RedirectResponse("/login", 303, PAGE_HEADERS | {"Clear-Site-Data": '"cache"'})
    cookies.clear_session_cookie(visit.request, response)
    return response


def _enter(request: Request, secret: str, goal: str) -> Response:
    response = RedirectResponse(goal, 303, PAGE_HEADERS)
    cookies.set_session_cookie(request, response, secret)
    return response


def _page(guest: AnonymousRequest, view: LoginView, status: int = 200) -> Response:
    return render_page(guest, PageSpec("login.html", "Log in", status=status), view)


def _origin(request: Request) -> BrowserClient:
    return BrowserClient(client_address(request), request.headers.get("user-agent", ""))
