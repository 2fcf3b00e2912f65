"""Who is at the browser, and whether a change truly comes from one of our pages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from heliostat.auth.web_logins import LoggedInBrowser, is_valid_csrf_token, not_logged_in_error
from heliostat.errors import BadRequest, Forbidden, HeliostatError
from heliostat.models import Caller, User
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin
from heliostat.web import cookies

CSRF_FIELD = "csrf"
_MOST_FIELDS = 5000
_SMALL_BYTES = 4 * 2**10  # is read in no time; what is larger must not keep all others waiting
_SAFE = {"GET", "HEAD", "OPTIONS"}


@dataclass(frozen=True, slots=True)
class AnonymousRequest:
    """Somebody who is not logged in. Their cookie only ties forms to their browser."""

    request: Request
    context: Context
    secret: str
    user: User | None = None


@dataclass(frozen=True, slots=True)
class AuthenticatedRequest:
    """Somebody who is logged in, and what they ask for."""

    request: Request
    context: Context
    secret: str
    browser: LoggedInBrowser

    @property
    def user(self) -> User:
        return self.browser.user

    @property
    def caller(self) -> Caller:
        """As services want it."""
        # Whoever has just changed something wants to see it, not what others saw a moment ago.
        is_live = _is_by_itself(self.request) and self.request.headers.get("cache-control") != "no-cache"
        return Caller(self.user, "live" if is_live else "web", client_address(self.request))


@dataclass(frozen=True, slots=True)
class SubmittedForm:
    """What was sent, as text; each field may be there several times."""

    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def get(self, name: str, default: str = "") -> str:
        """Without blanks around it."""
        return self.fields.get(name, (default,))[0].strip()

    def get_raw(self, name: str) -> str:
        """As it was typed: passwords and scripts."""
        return self.fields.get(name, ("",))[0]

    def get_all(self, name: str) -> tuple[str, ...]:
        return self.fields.get(name, ())

    def has(self, name: str) -> bool:
        return name in self.fields


async def require_login(request: Request) -> AuthenticatedRequest:
    """Raises NotAuthenticated, which sends a browser to the login page and back."""
    context: Context = request.app.state.context
    secret = cookies.session_cookie(request)
    if not secret:
        raise not_logged_in_error()
    # What is read from now on is at least as new as this.
    request.state.live_mark = request.app.state.live.mark
    # What refreshes by itself must not keep a login alive that nobody uses.
    in_use = not _is_by_itself(request)
    return AuthenticatedRequest(
        request, context, secret, context.identities.web_logins.require_browser(secret, in_use=in_use)
    )


async def anonymous_request(request: Request) -> AnonymousRequest:
    return AnonymousRequest(request, request.app.state.context, cookies.visitor_cookie(request))


async def require_admin_login(visit: "AuthenticatedDep") -> AuthenticatedRequest:
    require_admin(visit.user)
    return visit


async def read_verified_form(request: Request) -> SubmittedForm:
    """Part of every route of the web: nothing changes without the token of a form of ours."""
    if request.method in _SAFE:
        return SubmittedForm()
    _check_origin(request)
    body = await request.body()
    form = _parse(request, body) if len(body) <= _SMALL_BYTES else await run_in_threadpool(_parse, request, body)
    shown = request.headers.get("x-csrf-token") or form.get_raw(CSRF_FIELD)
    if not is_valid_csrf_token(identify_request(request).secret, shown):
        raise Forbidden("This form is no longer valid.", "Go back, load the page again, and send it once more.")
    return form


def client_address(request: Request) -> str:
    return request.client.host if request.client else "local socket"


def identify_request(request: Request) -> AuthenticatedRequest | AnonymousRequest:
    """Logged in or not, and never an error."""
    context: Context = request.app.state.context
    secret = cookies.session_cookie(request)
    try:
        return AuthenticatedRequest(
            request, context, secret, context.identities.web_logins.require_browser(secret, in_use=False)
        )
    except HeliostatError:
        return AnonymousRequest(request, context, cookies.visitor_cookie(request))


def is_logged_in(request: Request) -> bool:
    return isinstance(identify_request(request), AuthenticatedRequest)


def _is_by_itself(request: Request) -> bool:
    return request.url.path == "/live" or (request.method == "GET" and "x-fragment" in request.headers)


def _check_origin(request: Request) -> None:
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    own = {request.headers.get("host", "")}
    if public := request.app.state.context.settings.server.public_url:
        own.add(urlsplit(public).netloc)
    if site not in ("same-origin", "none") or (origin is not None and urlsplit(origin).netloc not in own):
        raise Forbidden("This request came from another site.", "Open the page here and try again.")


def _parse(request: Request, body: bytes) -> SubmittedForm:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/x-www-form-urlencoded", ""):
        raise BadRequest("Only forms can be sent here.", "Programs use /api/v1.")
    try:
        pairs = parse_qsl(
            body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise BadRequest("The form cannot be read.", "Load the page again and send it once more.") from None
    fields: dict[str, tuple[str, ...]] = {}
    for name, value in pairs:
        fields[name] = (*fields.get(name, ()), value.replace("\r\n", "\n"))
    return SubmittedForm(fields)


AuthenticatedDep = Annotated[AuthenticatedRequest, Depends(require_login)]
AdminDep = Annotated[AuthenticatedRequest, Depends(require_admin_login)]
AnonymousDep = Annotated[AnonymousRequest, Depends(anonymous_request)]
FormDep = Annotated[SubmittedForm, Depends(read_verified_form)]
