"""Pages to log in and out."""

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
    parse_form,
)

router = APIRouter()
unverified_router = APIRouter()  # its forms have no CSRF token: it must change nothing
_MAX_CODE_LENGTH = 100


@dataclass(frozen=True, slots=True)
class LoginView:
    next: str
    name: str = ""
    problem: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class LoginLinkView:
    user: str
    code: str
    next: str


@router.get("/login")
def show_login(request: AnonymousDep, next: str = "/") -> Response:  # noqa: A002 - name of the query parameter
    if not isinstance(identify_request(request.http), AnonymousRequest):
        return RedirectResponse(safe_redirect_path(next), 303, PAGE_HEADERS)
    return _page(request, LoginView(safe_redirect_path(next)))


@router.post("/login")
def log_in(request: AnonymousDep, form: FormDep) -> Response:
    name, next_path = form.get("name"), safe_redirect_path(form.get("next", "/"))
    try:
        secret = web_logins.log_in_browser(
            request.context, name, form.get_raw("password"), _browser_client(request.http)
        )
    except (NotAuthenticated, TooManyRequests, Forbidden) as error:
        return _page(request, LoginView(next_path, name[:64], error.message, error.hint or ""), error.status)
    return _redirect_logged_in(request.http, secret, next_path)


@router.get("/login/link")
async def log_in_by_link(request: Request, code: str = "", next: str = "/") -> Response:  # noqa: A002
    """The link that `helio web` prints. Links from other sites are refused."""
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Forbidden(
            "This link does not work from another site.", "Copy it into the address bar of the browser."
        )
    context = request.app.state.context
    secret = await run_in_threadpool(
        web_logins.log_in_browser_by_code, context, code[:_MAX_CODE_LENGTH], _browser_client(request)
    )
    return _redirect_logged_in(request, secret, safe_redirect_path(next))


@unverified_router.post("/login/link")
async def ask_before_login(request: AnonymousDep) -> Response:
    """The form in the local file that `helio web` opens. It has no CSRF token, and any site could send such a form
    with a code of its own user: so this only asks, and names the user.
    """
    return await run_in_threadpool(_ask_before_login, request, await request.http.body())


def _ask_before_login(request: AnonymousRequest, body: bytes) -> Response:
    form = parse_form(request.http, body)
    code = form.get("code")[:_MAX_CODE_LENGTH]
    user = request.context.authenticator.web_logins.find_user_of_code(code)
    view = LoginLinkView(user, code, safe_redirect_path(form.get("next", "/")))
    return render_page(request, PageSpec("login_link.html", "Log in"), view)


@router.post("/login/link/confirm")
def log_in_after_question(request: AnonymousDep, form: FormDep) -> Response:
    code = form.get("code")[:_MAX_CODE_LENGTH]
    secret = web_logins.log_in_browser_by_code(request.context, code, _browser_client(request.http))
    return _redirect_logged_in(request.http, secret, safe_redirect_path(form.get("next", "/")))


@router.post("/logout")
def log_out(request: AuthenticatedDep, form: FormDep) -> Response:
    if form.get("everywhere") == "yes":
        web_logins.log_out_all_browsers(request.context, request.caller)
    else:
        web_logins.log_out_browser(request.context, request.browser)
    response = RedirectResponse("/login", 303, PAGE_HEADERS | {"Clear-Site-Data": '"cache"'})
    cookies.clear_session_cookie(request.http, response)
    return response


def _redirect_logged_in(request: Request, secret: str, next_path: str) -> Response:
    response = RedirectResponse(next_path, 303, PAGE_HEADERS)
    cookies.set_session_cookie(request, response, secret)
    return response


def _page(request: AnonymousRequest, view: LoginView, status: int = 200) -> Response:
    return render_page(request, PageSpec("login.html", "Log in", status=status), view)


def _browser_client(request: Request) -> BrowserClient:
    return BrowserClient(client_address(request), request.headers.get("user-agent", ""))
