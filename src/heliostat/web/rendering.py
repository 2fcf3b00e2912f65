"""From a view to an answer: the frame around every page, its headers, and parts of pages for live updates."""

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
    "Referrer-Policy": "same-origin",  # with no-referrer a browser would hide the Origin of our own forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-store",
    "Vary": "Cookie, X-Fragment, X-Known, Accept-Encoding",
}
_WORTH_ZIPPING = 1400
_PIECES_KEPT = 4096

FlashKind = Literal["good", "bad", "note"]
_MOST_BROWSERS = 1000
_MOST_EACH = 5


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """What the header leads to. It shows once some page answers at its path."""

    title: str
    path: str
    icon: str  # a symbol of static/icons.svg
    admin_only: bool = False


NAVIGATION_ENTRIES = (
    NavigationEntry("Home", "/", "home"),
    NavigationEntry("Cluster", "/cluster", "cluster"),
    NavigationEntry("Jobs", "/jobs", "jobs"),
    NavigationEntry("Sessions", "/sessions", "session"),
    NavigationEntry("Services", "/services", "fabric"),
    NavigationEntry("Schedules", "/schedules", "timed_out"),
    NavigationEntry("Workflows", "/workflows", "workflow"),
    NavigationEntry("Datasets", "/datasets", "dataset"),
    NavigationEntry("Environments", "/environments", "environment"),
    NavigationEntry("Share", "/share", "share"),
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
    """What the layout needs: `page` in every template."""

    title: str
    path: str
    url: str  # path and query
    user: User | None
    navigation: tuple[NavigationLink, ...]
    breadcrumbs: tuple[tuple[str, str], ...]  # title and path of the pages above this one
    csrf_token: str
    flashes: tuple[FlashMessage, ...]
    live_url: str  # where the page hears of changes; empty: nowhere
    version: str = __version__


@dataclass(frozen=True, slots=True)
class PageSpec:
    """How a page is made: its template and title, what it listens to, where it stands."""

    template: str
    title: str
    live_topics: Sequence[str] = ()  # topics: jobs, job:12, nodes, rules
    breadcrumbs: Sequence[tuple[str, str]] = ()
    status: int = 200


def render_page(visit: AuthenticatedRequest | AnonymousRequest, page: PageSpec, view: object = None) -> Response:
    """The page, or with an X-Fragment header only those blocks of it. Templates see `page` and `view`."""
    template = template_environment().get_template(page.template)
    wanted = visit.request.headers.get("x-fragment")
    values = {"page": _frame(visit, page, take_flashes=wanted is None), "view": view}
    if wanted is None:
        response = _zipped(visit.request, template.render(values), page.status)
    else:
        response = _refreshed(visit, page, template, wanted, values)
    if isinstance(visit, AnonymousRequest):
        cookies.set_visitor_cookie(visit.request, response)
    return response


def redirect(visit: AuthenticatedRequest, path: str, said: str = "", kind: FlashKind = "good") -> Response:
    """After a change: go and look at it, with a word about what was done."""
    if said:
        flashes: FlashMessages = visit.request.app.state.flashes
        flashes.add(visit.secret, FlashMessage(kind, said))
    return RedirectResponse(path, 303, PAGE_HEADERS)


def _frame(visit: AuthenticatedRequest | AnonymousRequest, page: PageSpec, take_flashes: bool) -> LayoutContext:
    request, user = visit.request, visit.user
    flashes: FlashMessages = request.app.state.flashes
    query = request.url.query
    return LayoutContext(
        title=page.title,
        path=request.url.path,
        url=request.url.path + (f"?{query}" if query else ""),
        user=user,
        navigation=() if user is None else navigation_links(user, request.app.state.served, request.url.path),
        breadcrumbs=tuple(page.breadcrumbs),
        csrf_token=create_csrf_token(visit.secret),
        flashes=flashes.take(visit.secret) if take_flashes else (),
        live_url=_live_address(request, page) if page.live_topics else "",
    )


def _live_address(request: Request, page: PageSpec) -> str:
    """With a mark of how new the page is: what changes before the page listens is then told at once."""
    topics = [("topic", topic) for topic in page.live_topics]
    return "/live?" + urlencode([*topics, ("after", getattr(request.state, "live_mark", 0))])


def _refreshed(
    visit: AuthenticatedRequest | AnonymousRequest,
    page: PageSpec,
    template: "Template",
    wanted: str,
    values: dict[str, Any],
) -> Response:
    """The parts, or nothing when they are what the page says it shows already."""
    request = visit.request
    known = _fingerprint(visit, page, wanted, values["view"])
    if known and page.status == 200 and request.headers.get("x-known") == known:
        return Response(status_code=204, headers=PAGE_HEADERS | {"X-Known": known})
    response = _zipped(request, _fragments(template, wanted, values), page.status)
    if known:
        response.headers["X-Known"] = known
    return response


def _fingerprint(visit: AuthenticatedRequest | AnonymousRequest, page: PageSpec, wanted: str, view: object) -> str:
    """Of all that the parts are made from; empty when that cannot be told."""
    seen = repr((__version__, page.template, wanted, visit.user, visit.request.url.query, view))
    return "" if " at 0x" in seen else hashlib.blake2b(seen.encode("utf-8", "replace"), digest_size=12).hexdigest()


def _fragments(template: "Template", wanted: str, values: dict[str, Any]) -> str:
    context = template.new_context(values)
    names = [name for name in dict.fromkeys(wanted.split(",")) if name in template.blocks]
    parts = ((name, "".join(template.blocks[name](context))) for name in names)
    return "".join(f'<template data-part="{name}">{text}</template>' for name, text in parts)


def _zipped(request: Request, text: str, status: int) -> Response:
    data = text.encode("utf-8", "replace")
    headers = dict(PAGE_HEADERS)
    if len(data) > _WORTH_ZIPPING and "gzip" in request.headers.get("accept-encoding", ""):
        data = gzip.compress(data, 3, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return HTMLResponse(data, status, headers)


@cache
def template_environment() -> "Environment":
    """Made at the first page: a server that nobody looks at loads no templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= formatting.TEMPLATE_FILTERS
    made.globals |= {"asset": asset_url}
    # Parts of pages are rendered alone, where an import at the top of a template would not have happened.
    made.globals["ui"] = _quicker(made.get_template("components.html").module)
    return made


def _quicker(macros: Any) -> Any:
    """Small pieces that depend on nothing but their arguments are made once: a list has hundreds of them."""
    for name in ("icon", "state", "time", "clock", "size", "gpus", "user", "project", "job"):
        setattr(macros, name, lru_cache(_PIECES_KEPT, typed=True)(getattr(macros, name)))
    return macros


class FlashMessages:
    """What was just done, shown once on the next page. Kept in memory: a restart in between loses a sentence."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, list[FlashMessage]] = OrderedDict()

    def add(self, secret: str, flash: FlashMessage) -> None:
        with self._lock:
            mine = self._kept.setdefault(secret_digest(secret), [])
            mine.append(flash)
            del mine[:-_MOST_EACH]
            while len(self._kept) > _MOST_BROWSERS:
                self._kept.popitem(last=False)

    def take(self, secret: str) -> tuple[FlashMessage, ...]:
        if not self._kept:
            return ()
        with self._lock:
            return tuple(self._kept.pop(secret_digest(secret), ()))


def navigation_links(user: User, served: frozenset[str], path: str) -> tuple[NavigationLink, ...]:
    """The entries for this person, on this page."""
    shown = (
        entry for entry in NAVIGATION_ENTRIES if entry.path in served and (user.is_admin or not entry.admin_only)
    )
    return tuple(NavigationLink(entry.title, entry.path, entry.icon, _is_at(entry.path, path)) for entry in shown)


def _is_at(entry: str, path: str) -> bool:
    return path == entry or (entry != "/" and path.startswith(entry + "/"))
