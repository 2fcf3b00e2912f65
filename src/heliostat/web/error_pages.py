"""Error pages and redirects to the login page."""

from dataclasses import dataclass
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from heliostat.errors import HeliostatError
from heliostat.web import cookies
from heliostat.web.rendering import PAGE_HEADERS, PageSpec, render_page
from heliostat.web.request_context import identify_request

_PATHS_FOR_PROGRAMS = ("/api/", "/metrics", "/healthz", "/readyz")
_TITLES = {
    400: "Bad request",
    401: "Please log in",
    403: "Permission denied",
    404: "Not found",
    405: "Method not allowed",
    409: "Not possible in the current state",
    413: "Request too large",
    422: "Invalid input",
    429: "Too many requests",
    500: "Internal error",
    503: "Temporarily unavailable",
}


@dataclass(frozen=True, slots=True)
class ErrorPageView:
    status: int
    title: str
    message: str
    hint: str
    fields: tuple[tuple[str, str], ...]


def is_web_request(request: Request) -> bool:
    return not request.url.path.startswith(_PATHS_FOR_PROGRAMS)


def render_error_page(request: Request, error: HeliostatError, status: int | None = None) -> Response:
    """An error page; without a login, a redirect to the login page that leads back here."""
    status = status or error.status
    is_live = "x-fragment" in request.headers or request.url.path == "/live"
    if status == 401 and is_live:
        return Response(status_code=401, headers=PAGE_HEADERS)
    if status == 401 and request.method in ("GET", "HEAD") and not request.url.path.startswith("/login"):
        return _login_redirect(request)
    title = _TITLES.get(status, _TITLES[500])
    view = ErrorPageView(status, title, error.message, error.hint or "", tuple(error.fields.items()))
    return render_page(identify_request(request), PageSpec("error.html", title, status=status), view)


def safe_redirect_path(path: str) -> str:
    """The path if it is a page of this site, otherwise `/`: prevents open redirects after a login."""
    is_plain = len(path) < _MAX_PATH_LENGTH and all(" " < letter <= "~" and letter != "\\" for letter in path)
    if not is_plain or not path.startswith("/") or path.startswith(("//", "/log")):
        return "/"
    return path


_MAX_PATH_LENGTH = 2000


def _login_redirect(request: Request) -> Response:
    query = f"?{request.url.query}" if request.url.query else ""
    path = safe_redirect_path(request.url.path + query)
    response = RedirectResponse("/login" + (f"?next={quote(path)}" if path != "/" else ""), 303, PAGE_HEADERS)
    if cookies.session_cookie(request):
        cookies.clear_session_cookie(request, response)
    return response
