"""What went wrong, as a page."""

from dataclasses import dataclass
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from heliostat.errors import HeliostatError
from heliostat.web import cookies
from heliostat.web.rendering import PAGE_HEADERS, PageSpec, render_page
from heliostat.web.request_context import identify_request

_TITLES = {
    400: "That did not make sense",
    401: "Please log in",
    403: "You may not do this",
    404: "There is nothing here",
    405: "That is not possible here",
    409: "Not possible now",
    413: "Too large",
    422: "Something is not right yet",
    429: "Too many tries",
    500: "Something went wrong",
    503: "Not available at this moment",
}


@dataclass(frozen=True, slots=True)
class ErrorPageView:
    status: int
    title: str
    message: str
    hint: str
    fields: tuple[tuple[str, str], ...]


def is_web_request(request: Request) -> bool:
    return not request.url.path.startswith("/api/")


def render_error_page(request: Request, error: HeliostatError, status: int | None = None) -> Response:
    """A page; for somebody who is not logged in, the way to the login and back."""
    status = status or error.status
    is_live = "x-fragment" in request.headers or request.url.path == "/live"
    if status == 401 and is_live:
        return Response(status_code=401, headers=PAGE_HEADERS)
    if status == 401 and request.method in ("GET", "HEAD") and not request.url.path.startswith("/login"):
        return _to_login(request)
    title = _TITLES.get(status, _TITLES[500])
    view = ErrorPageView(status, title, error.message, error.hint or "", tuple(error.fields.items()))
    return render_page(identify_request(request), PageSpec("error.html", title, status=status), view)


def safe_redirect_path(wanted: str) -> str:
    """Where to go after the login: a page of ours, whatever the address says."""
    is_plain = len(wanted) < _LONGEST_ADDRESS and all(" " < letter <= "~" and letter != "\\" for letter in wanted)
    if not is_plain or not wanted.startswith("/") or wanted.startswith(("//", "/log")):
        return "/"
    return wanted


_LONGEST_ADDRESS = 2000


def _to_login(request: Request) -> Response:
    query = f"?{request.url.query}" if request.url.query else ""
    here = safe_redirect_path(request.url.path + query)
    response = RedirectResponse("/login" + (f"?next={quote(here)}" if here != "/" else ""), 303, PAGE_HEADERS)
    if cookies.session_cookie(request):
        cookies.clear_session_cookie(request, response)
    return response
