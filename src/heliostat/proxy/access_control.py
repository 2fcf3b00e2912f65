"""Who comes, where to, and may they: the same for requests and WebSockets."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote, urlsplit

from heliostat.auth.proxy_grants import BrowserCredentials
from heliostat.auth.web_logins import generate_secret, secret_digest
from heliostat.errors import BadRequest, Forbidden, HeliostatError, NotAuthenticated, NotFound
from heliostat.models.sessions import ProxyTarget
from heliostat.proxy.headers import ForwardingContext, Headers, cookie_value, cookie_values, header_values
from heliostat.proxy.load_balancer import LoadBalancer
from heliostat.proxy.paths import ParsedPath, parse_path, parse_target_host
from heliostat.services.context import Context
from heliostat.services.proxy_routes import ProxyRoute, find_route
from heliostat.services.public_urls import PublicUrls

T = TypeVar("T")
_WAY_SECONDS = 2.0  # how long we go on believing where a job runs and whose it is
_MOST_WAYS = 4096
_LONGEST = 200
_MOST_LOGINS = 10
_COOKIE, _NONCE = "helio_proxy", "helio_nonce"
_LOGINS = (b"helio_session", b"__Host-helio_session")


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    method: str
    raw_path: bytes
    query: bytes
    headers: Headers
    client: str
    is_upgrade: bool = False

    @property
    def host(self) -> bytes:
        """As the browser wrote it."""
        found = header_values(self.headers, b"host")
        if len(found) != 1:
            raise BadRequest("A request needs one Host header.", "Send exactly one.")
        return found[0]


@dataclass(frozen=True, slots=True)
class AuthorizedRequest:
    """Somebody who may pass."""

    user: str
    secret: str
    parsed_path: ParsedPath
    route: ProxyRoute
    forwarding: ForwardingContext
    other_routes: tuple[ProxyRoute, ...] = ()  # of a service: its other replicas, the best one first


class AccessControl:
    """Lives on one event loop; what takes longer is done by threads."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._ways: dict[ProxyTarget, tuple[float, ProxyRoute]] = {}
        self.load_balancer = LoadBalancer(context)

    def parse_request_path(self, request: ProxyRequest) -> ParsedPath:
        """Raises NotFound. Where each target has its own host name, only under that."""
        asked = parse_path(request.raw_path, request.query)
        addresses = self._context.public_urls
        if asked is not None and addresses.has_host_per_target:
            pattern = urlsplit(addresses.proxy_url).netloc
            asked = asked if parse_target_host(request.host, pattern) == asked.target else None
        if asked is None:
            raise NotFound("There is nothing here.", "Open a session or a port from its page in Heliostat.")
        return asked

    async def authorize(self, request: ProxyRequest, asked: ParsedPath) -> AuthorizedRequest:
        """Raises NotAuthenticated, Forbidden, NotFound or Conflict."""
        secret, is_program = self._secret(request.headers)
        if not is_program:
            check_origin(request)
        user = await self._user(secret, asked.target)
        if not is_program:
            await self._check_logins(request.headers, user)
        if asked.target.service:
            way, *others = await self.load_balancer.ordered_routes(asked.target, user, is_program=is_program)
            return AuthorizedRequest(user, secret, asked, way, self._passing(request, way), tuple(others))
        way = await self._way(asked.target)
        if user not in way.allowed_users:
            raise Forbidden("This is somebody else's.", "Ask them to share it with you.")
        return AuthorizedRequest(user, secret, asked, way, self._passing(request, way))

    async def is_still_authorized(self, admitted: AuthorizedRequest) -> bool:
        """Whether who came some time ago may still be here."""
        target = admitted.parsed_path.target
        try:
            user = await self._user(admitted.secret, target)
            if target.service:  # a replica that drains goes on with what it has begun
                return user in (await self.load_balancer.find_candidates(target)).allowed_users
            way = await self._way(target)
        except HeliostatError:
            return False
        return user in way.allowed_users and way.attempt.id == admitted.route.attempt.id

    def login_redirect(self, request: ProxyRequest, asked: ParsedPath) -> tuple[str, str]:
        """Where a browser without a cookie is sent, and the cookie with which it comes back."""
        nonce = _text(cookie_value(request.headers, self._name(_NONCE))) or generate_secret()
        goal = (request.raw_path + (b"?" + request.query if request.query else b"")).decode("latin-1")
        query = f"nonce={secret_digest(nonce)}&next={quote(goal, safe='')}"
        address = f"{self._seen(request).control_url}/enter/{asked.target.name}?{query}"
        return address, self._cookie(_NONCE, nonce, asked.target, 600)

    async def redeem_entry_code(self, request: ProxyRequest, asked: ParsedPath, code: str) -> str:
        """The cookie of somebody who shows a code. Raises NotAuthenticated."""
        nonce = _text(cookie_value(request.headers, self._name(_NONCE)))
        shown, target = BrowserCredentials(nonce, _logins(request.headers)), asked.target
        grants = self._context.identities.proxy_grants
        secret = await self._in_thread(lambda: grants.redeem_code(code[:_LONGEST], target, shown))
        return self._cookie(_COOKIE, secret, target, 7 * 24 * 3600)

    def control_page_url(self, request: ProxyRequest, target: ProxyTarget) -> str:
        """In the control plane."""
        if target.service:
            return f"{self._seen(request).control_url}/services/{target.service}"
        kind = "sessions" if target.port is None else "jobs"
        return f"{self._seen(request).control_url}/{kind}/{target.job_id}"

    def _seen(self, request: ProxyRequest) -> PublicUrls:
        return self._context.public_urls.for_host(request.host.decode("latin-1"))

    def _secret(self, headers: Headers) -> tuple[str, bool]:
        """Shown by a program, or by a browser."""
        shown = header_values(headers, b"authorization")
        scheme, _, secret = _text(shown[0]).partition(" ") if len(shown) == 1 else ("", "", "")
        if scheme.lower() == "bearer" and secret:
            return secret.strip(), True
        return _text(cookie_value(headers, self._name(_COOKIE))), False

    async def _user(self, secret: str, target: ProxyTarget) -> str:
        if secret and self._context.identities.proxy_grants.is_cached(secret):
            return self._holder(secret, target)
        return await self._in_thread(lambda: self._holder(secret, target))

    async def _check_logins(self, headers: Headers, user: str) -> None:
        """Raises NotAuthenticated in the browser of somebody else, where this way in must have been planted."""
        grants, logins = self._context.identities.proxy_grants, _logins(headers)
        if grants.are_logins_cached(logins):
            is_theirs = grants.are_logins_of(user, logins)
        else:
            is_theirs = await self._in_thread(lambda: grants.are_logins_of(user, logins))
        if not is_theirs:
            raise NotAuthenticated("Somebody else is logged in here.", "Open it from its page.")

    def _holder(self, secret: str, target: ProxyTarget) -> str:
        if not secret:
            raise NotAuthenticated("You have not come through Heliostat.", "Open it from its page.")
        return self._context.identities.proxy_grants.require_user(secret, target).name

    async def _way(self, target: ProxyTarget) -> ProxyRoute:
        now = time.monotonic()
        known = self._ways.get(target)
        if known is not None and now - known[0] < _WAY_SECONDS:
            return known[1]
        self._ways.pop(target, None)
        way = await self._in_thread(lambda: find_route(self._context, target))
        if len(self._ways) >= _MOST_WAYS:
            self._ways.clear()
        self._ways[target] = (now, way)
        return way

    def _passing(self, request: ProxyRequest, way: ProxyRoute) -> ForwardingContext:
        return ForwardingContext(
            prefix=way.target.path_prefix.encode(),
            keeps_prefix=way.keeps_path_prefix,
            scheme=b"https" if self._context.public_urls.is_encrypted else b"http",
            host=request.host,
            client=request.client.encode("latin-1", "replace"),
            authorization=None if way.authorization_header is None else way.authorization_header.encode("latin-1"),
        )

    def _name(self, name: str) -> bytes:
        return (f"__Secure-{name}" if self._context.public_urls.is_encrypted else name).encode()

    def _cookie(self, name: str, value: str, target: ProxyTarget, seconds: int) -> str:
        secure = "; Secure" if self._context.public_urls.is_encrypted else ""
        full = self._name(name).decode()
        return f"{full}={value}; Path={target.path_prefix}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, call)


def check_origin(request: ProxyRequest) -> None:
    """A browser adds its cookie also to what others let it ask, and every port of this host counts as near."""
    headers, host = request.headers, request.host.decode("latin-1")
    origins = header_values(headers, b"origin")
    is_foreign = any(urlsplit(origin.decode("latin-1")).netloc != host for origin in origins)
    if is_foreign or (request.is_upgrade and len(origins) != 1):
        raise Forbidden("This request came from another site.", "Open the page here and try again.")
    site = header_values(headers, b"sec-fetch-site")
    if not site or site[0] in (b"same-origin", b"none"):
        return
    is_visit = header_values(headers, b"sec-fetch-mode") == [b"navigate"] and header_values(
        headers, b"sec-fetch-dest"
    ) == [b"document"]
    if request.method not in ("GET", "HEAD") or not is_visit:
        raise Forbidden("This request came from another site.", "Open the page here and try again.")


def _logins(headers: Headers) -> tuple[str, ...]:
    """All that a browser shows, as more than one may be planted. Very many are nobody's browser."""
    found = tuple(_text(one) for name in _LOGINS for one in cookie_values(headers, name))
    if len(found) > _MOST_LOGINS:
        raise BadRequest("Too many login cookies.", "Delete the cookies of this site and log in again.")
    return found


def _text(value: bytes) -> str:
    return value[:_LONGEST].decode("latin-1")
