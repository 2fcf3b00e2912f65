"""Page rendering: layout, security headers, flash messages, and page fragments for live updates."""

import gzip
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from heliostat import __version__
from heliostat.auth.web_logins import create_csrf_token, secret_digest
from heliostat.models import User
from heliostat.services.cluster.notice import notice_for_all
from heliostat.web import cookies, formatting
from heliostat.web.assets import asset_url
from heliostat.web.request_context import AnonymousRequest, AuthenticatedRequest

if TYPE_CHECKING:
    from jinja2 import Environment, Template

_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": _CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers would not send the Origin of forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-store",
    "Vary": "Cookie, X-Fragment, X-Known, Accept-Encoding",
}
_MIN_GZIP_BYTES = 1400
_CACHED_MACRO_RESULTS = 4096

FlashKind = Literal["good", "bad", "note"]
_MAX_BROWSERS = 1000
_MAX_PER_BROWSER = 5


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """A link of the header. It is shown if a page is served at its path."""

    title: str
    path: str
    icon: str  # a symbol of static/icons.svg
    admin_only: bool = False
    also: tuple[str, ...] = ()  # other paths that belong to it


NAVIGATION_ENTRIES = (
    NavigationEntry("Home", "/", "home"),
    NavigationEntry("Cluster", "/cluster", "cluster"),
    NavigationEntry("Jobs", "/jobs", "jobs", also=("/arrays", "/compare")),
    NavigationEntry("Sessions", "/sessions", "session"),
    NavigationEntry("Services", "/services", "fabric"),
    NavigationEntry("Schedules", "/schedules", "timed_out"),
    NavigationEntry("Workflows", "/workflows", "workflow", also=("/sweeps",)),
    NavigationEntry("Datasets", "/datasets", "dataset"),
    NavigationEntry("Environments", "/environments", "environment", also=("/images",)),
    NavigationEntry("Fair share", "/share", "share"),
    NavigationEntry("Reports", "/reports", "report"),
    NavigationEntry("Fabric", "/fabric", "fabric"),
    NavigationEntry("Admin", "/admin", "admin", admin_only=True),
)


@dataclass(frozen=True, slots=True)
class NavigationLink:
    title: str
    path: str
    icon: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class FlashMessage:
    kind: FlashKind
    text: str


@dataclass(frozen=True, slots=True)
class LayoutContext:
    """Data of the layout: `page` in every template."""

    title: str
    path: str
    url: str  # path and query
    user: User | None
    navigation: tuple[NavigationLink, ...]
    breadcrumbs: tuple[tuple[str, str], ...]  # title and path of the parent pages
    csrf_token: str
    flashes: tuple[FlashMessage, ...]
    live_url: str  # event stream of changes, which also shows whether the server responds; empty: no login
    is_live: bool  # the page updates itself
    notice: str  # concerns all pages; empty: none
    version: str = __version__


@dataclass(frozen=True, slots=True)
class PageSpec:
    """Template, title, live topics and breadcrumbs of a page."""

    template: str
    title: str
    live_topics: Sequence[str] = ()  # topics: jobs, job:12, nodes, rules
    breadcrumbs: Sequence[tuple[str, str]] = ()
    status: int = 200


def render_page(request: AuthenticatedRequest | AnonymousRequest, page: PageSpec, view: object = None) -> Response:
    """The page, or with an X-Fragment header only these blocks. Templates get `page` and `view`."""
    template = template_environment().get_template(page.template)
    fragments = request.http.headers.get("x-fragment")
    values = {"page": _layout_context(request, page, take_flashes=fragments is None), "view": view}
    if fragments is None:
        response = _compressed(request.http, template.render(values), page.status)
    else:
        response = _fragment_response(request, page, template, fragments, values)
    if isinstance(request, AnonymousRequest):
        cookies.set_visitor_cookie(request.http, response)
    return response


def redirect(request: AuthenticatedRequest, path: str, message: str = "", kind: FlashKind = "good") -> Response:
    """Redirect after a change, with a flash message."""
    if message:
        flashes: FlashMessages = request.http.app.state.flashes
        flashes.add(request.secret, FlashMessage(kind, message))
    return RedirectResponse(path, 303, PAGE_HEADERS)


def _layout_context(
    request: AuthenticatedRequest | AnonymousRequest, page: PageSpec, take_flashes: bool
) -> LayoutContext:
    http, user = request.http, request.user
    flashes: FlashMessages = http.app.state.flashes
    query = http.url.query
    return LayoutContext(
        title=page.title,
        path=http.url.path,
        url=http.url.path + (f"?{query}" if query else ""),
        user=user,
        navigation=() if user is None else navigation_links(user, http.app.state.served, http.url.path),
        breadcrumbs=tuple(page.breadcrumbs),
        csrf_token=create_csrf_token(request.secret),
        flashes=flashes.take(request.secret) if take_flashes else (),
        live_url="" if user is None else _live_url(http, page),
        is_live=bool(page.live_topics),
        notice="" if user is None else notice_for_all(request.context),
    )


def _live_url(http: Request, page: PageSpec) -> str:
    """With the revision of the page, so that a change before the subscription is reported immediately."""
    topics = [("topic", topic) for topic in page.live_topics]
    return "/live?" + urlencode([*topics, ("after", getattr(http.state, "live_revision", 0))])


def _fragment_response(
    request: AuthenticatedRequest | AnonymousRequest,
    page: PageSpec,
    template: "Template",
    fragments: str,
    values: dict[str, Any],
) -> Response:
    """The fragments; status 204 if the page already shows them."""
    known = _fingerprint(request, page, fragments, values["view"])
    if known and page.status == 200 and request.http.headers.get("x-known") == known:
        return Response(status_code=204, headers=PAGE_HEADERS | {"X-Known": known})
    response = _compressed(request.http, _render_fragments(template, fragments, values), page.status)
    if known:
        response.headers["X-Known"] = known
    return response


def _fingerprint(
    request: AuthenticatedRequest | AnonymousRequest, page: PageSpec, fragments: str, view: object
) -> str:
    """Digest of the data of the fragments; empty: not comparable."""
    content = repr((__version__, page.template, fragments, request.user, request.http.url.query, view))
    return (
        ""
        if " at 0x" in content
        else hashlib.blake2b(content.encode("utf-8", "replace"), digest_size=12).hexdigest()
    )


def _render_fragments(template: "Template", fragments: str, values: dict[str, Any]) -> str:
    context = template.new_context(values)
    names = [name for name in dict.fromkeys(fragments.split(",")) if name in template.blocks]
    parts = ((name, "".join(template.blocks[name](context))) for name in names)
    return "".join(f'<template data-part="{name}">{text}</template>' for name, text in parts)


def _compressed(http: Request, text: str, status: int) -> Response:
    data = text.encode("utf-8", "replace")
    headers = dict(PAGE_HEADERS)
    if len(data) > _MIN_GZIP_BYTES and "gzip" in http.headers.get("accept-encoding", ""):
        data = gzip.compress(data, 3, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return HTMLResponse(data, status, headers)


@cache
def template_environment() -> "Environment":
    """Created with the first page: a server without page requests loads no templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= formatting.TEMPLATE_FILTERS
    environment.globals |= {"asset": asset_url}
    # Fragments are rendered alone, without the imports at the top of their template.
    environment.globals["ui"] = _cached_macros(environment.get_template("components.html").module)
    return environment


def _cached_macros(macros: Any) -> Any:
    """Cache small macros that depend only on their arguments: a list calls them hundreds of times."""
    for name in ("icon", "state", "time", "clock", "size", "gpus", "user", "project", "job"):
        setattr(macros, name, lru_cache(_CACHED_MACRO_RESULTS, typed=True)(getattr(macros, name)))
    return macros


class FlashMessages:
    """Messages about a completed action, shown once on the next page. In memory: lost at a restart."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: OrderedDict[str, list[FlashMessage]] = OrderedDict()

    def add(self, secret: str, flash: FlashMessage) -> None:
        with self._lock:
            messages = self._messages.setdefault(secret_digest(secret), [])
            messages.append(flash)
            del messages[:-_MAX_PER_BROWSER]
            while len(self._messages) > _MAX_BROWSERS:
                self._messages.popitem(last=False)

    def take(self, secret: str) -> tuple[FlashMessage, ...]:
        if not self._messages:
            return ()
        with self._lock:
            return tuple(self._messages.pop(secret_digest(secret), ()))


def navigation_links(user: User, served: frozenset[str], path: str) -> tuple[NavigationLink, ...]:
    """Navigation entries for the user on this page."""
    visible = (
        entry for entry in NAVIGATION_ENTRIES if entry.path in served and (user.is_admin or not entry.admin_only)
    )
    return tuple(
        NavigationLink(entry.title, entry.path, entry.icon, _is_current(entry, path)) for entry in visible
    )


def _is_current(entry: NavigationEntry, path: str) -> bool:
    return any(path == own or (own != "/" and path.startswith(own + "/")) for own in (entry.path, *entry.also))
