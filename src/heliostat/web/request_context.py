"""Authentication of page requests, and CSRF checks of submitted forms."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from heliostat.auth.client_address import describe_client
from heliostat.auth.web_logins import LoggedInBrowser, is_valid_csrf_token, not_logged_in_error
from heliostat.errors import BadRequest, Forbidden, HeliostatError
from heliostat.models import Caller, User
from heliostat.server_log import bind_log_context
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin
from heliostat.web import cookies

CSRF_FIELD = "csrf"
_MAX_FIELDS = 5000
_SMALL_BYTES = 4 * 2**10  # larger forms are parsed in a thread, not in the event loop
_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}


@dataclass(frozen=True, slots=True)
class AnonymousRequest:
    """A request without a login. Its cookie only binds forms to the browser."""

    http: Request
    context: Context
    secret: str
    user: User | None = None


@dataclass(frozen=True, slots=True)
class AuthenticatedRequest:
    """A request of a logged-in user."""

    http: Request
    context: Context
    secret: str
    browser: LoggedInBrowser

    @property
    def user(self) -> User:
        return self.browser.user

    @property
    def caller(self) -> Caller:
        """The caller for services."""
        # After a change the user must see the new state, not one that is cached for live refreshes.
        is_live = _is_automatic(self.http) and self.http.headers.get("cache-control") != "no-cache"
        return Caller(self.user, "live" if is_live else "web", client_address(self.http))


@dataclass(frozen=True, slots=True)
class SubmittedForm:
    """Submitted fields as text; a field may occur several times."""

    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def get(self, name: str, default: str = "") -> str:
        """Without surrounding whitespace."""
        return self.fields.get(name, (default,))[0].strip()

    def get_raw(self, name: str) -> str:
        """With surrounding whitespace: passwords and scripts."""
        return self.fields.get(name, ("",))[0]

    def get_all(self, name: str) -> tuple[str, ...]:
        return self.fields.get(name, ())

    def has(self, name: str) -> bool:
        return name in self.fields


async def require_login(request: Request) -> AuthenticatedRequest:
    """Raises NotAuthenticated, which redirects a browser to the login page."""
    context: Context = request.app.state.context
    secret = cookies.session_cookie(request)
    if not secret:
        raise not_logged_in_error()
    # The page shows data that is at least as new as this revision.
    request.state.live_revision = request.app.state.live.revision
    # Automatic refreshes must not extend an unused login.
    in_use = not _is_automatic(request)
    browser = find_browser(request, in_use=in_use)
    bind_log_context(user=browser.user.name)
    return AuthenticatedRequest(request, context, secret, browser)


async def anonymous_request(request: Request) -> AnonymousRequest:
    return AnonymousRequest(request, request.app.state.context, cookies.visitor_cookie(request))


async def require_admin_login(request: "AuthenticatedDep") -> AuthenticatedRequest:
    require_admin(request.user)
    return request


async def read_verified_form(request: Request) -> SubmittedForm:
    """Dependency of every page route: a change needs the CSRF token of a form of this site."""
    if request.method in _SAFE_METHODS:
        return SubmittedForm()
    _check_origin(request)
    body = await request.body()
    is_small = len(body) <= _SMALL_BYTES
    form = parse_form(request, body) if is_small else await run_in_threadpool(parse_form, request, body)
    token = request.headers.get("x-csrf-token") or form.get_raw(CSRF_FIELD)
    if not is_valid_csrf_token(identify_request(request).secret, token):
        raise Forbidden("This form is no longer valid.", "Go back, reload the page and submit the form again.")
    return form


def client_address(request: Request) -> str:
    return describe_client(request.scope)


def identify_request(request: Request) -> AuthenticatedRequest | AnonymousRequest:
    """With or without a login; never raises."""
    context: Context = request.app.state.context
    secret = cookies.session_cookie(request)
    try:
        return AuthenticatedRequest(request, context, secret, find_browser(request, in_use=False))
    except HeliostatError:
        return AnonymousRequest(request, context, cookies.visitor_cookie(request))


def find_browser(request: Request, *, in_use: bool) -> LoggedInBrowser:
    """The login of the cookie. Raises NotAuthenticated, Forbidden."""
    context: Context = request.app.state.context
    # Without TLS, browsers send the cookie to all ports of this host: it is worth something only where it was set.
    address = None if cookies.is_encrypted(request) else client_address(request)
    return context.authenticator.web_logins.require_browser(
        cookies.session_cookie(request), address=address, in_use=in_use
    )


def _is_automatic(request: Request) -> bool:
    return request.url.path == "/live" or (request.method == "GET" and "x-fragment" in request.headers)


def _check_origin(request: Request) -> None:
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    own_hosts = {request.headers.get("host", "")}
    if public := request.app.state.context.settings.server.public_url:
        own_hosts.add(urlsplit(public).netloc)
    if site not in ("same-origin", "none") or (origin is not None and urlsplit(origin).netloc not in own_hosts):
        raise Forbidden("This request came from another site.", "Open the page on this site and try again.")


def parse_form(request: Request, body: bytes) -> SubmittedForm:
    """Without the checks of `read_verified_form`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/x-www-form-urlencoded", ""):
        raise BadRequest("This URL accepts only forms.", "Use /api/v1 for programs.")
    try:
        pairs = parse_qsl(
            body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS
        )
    except ValueError:
        raise BadRequest("The form cannot be read.", "Reload the page and submit the form again.") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return SubmittedForm({name: tuple(values) for name, values in fields.items()})


AuthenticatedDep = Annotated[AuthenticatedRequest, Depends(require_login)]
AdminDep = Annotated[AuthenticatedRequest, Depends(require_admin_login)]
AnonymousDep = Annotated[AnonymousRequest, Depends(anonymous_request)]
FormDep = Annotated[SubmittedForm, Depends(read_verified_form)]
