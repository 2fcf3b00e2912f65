"""Access control of the proxy: authentication and authorization of HTTP requests and WebSockets."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote, urlsplit

from heliostat.auth.client_address import ClientAddress, Connection, find_client
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
_ROUTE_CACHE_SECONDS = 2.0  # how long the node and owner of a job are cached
_MAX_CACHED_ROUTES = 4096
_MAX_SECRET_LENGTH = 200
_MAX_LOGINS = 10
_COOKIE, _NONCE = "helio_proxy", "helio_nonce"
_LOGIN_COOKIES = (b"helio_session", b"__Host-helio_session")


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    method: str
    raw_path: bytes
    query: bytes
    headers: Headers
    client: ClientAddress
    is_upgrade: bool = False

    @property
    def host(self) -> bytes:
        """As sent by the browser."""
        hosts = header_values(self.headers, b"host")
        if len(hosts) != 1:
            raise BadRequest("A request must have exactly one Host header.", "Send one Host header.")
        return hosts[0]


@dataclass(frozen=True, slots=True)
class AuthorizedRequest:
    """An authorized request with its route."""

    user: str
    secret: str
    cookie_address: str | None
    parsed_path: ParsedPath
    route: ProxyRoute
    forwarding: ForwardingContext
    other_routes: tuple[ProxyRoute, ...] = ()  # of a service: its other replicas, best first


class AccessControl:
    """Used on one event loop; database reads run in threads."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._routes: dict[ProxyTarget, tuple[float, ProxyRoute]] = {}
        self.load_balancer = LoadBalancer(context)

    def parse_request_path(self, request: ProxyRequest) -> ParsedPath:
        """Raises NotFound. With one host name per target, only that host name is valid."""
        parsed = parse_path(request.raw_path, request.query)
        urls = self._context.public_urls
        if parsed is not None and urls.has_host_per_target:
            pattern = urlsplit(urls.proxy_url).netloc
            parsed = parsed if parse_target_host(request.host, pattern) == parsed.target else None
        if parsed is None:
            raise NotFound("Page not found.", "Open a session or a port from its page in Heliostat.")
        return parsed

    def find_client(self, connection: Connection, headers: Headers) -> ClientAddress:
        forwarded_for = b",".join(header_values(headers, b"x-forwarded-for")).decode("latin-1")
        return find_client(connection, forwarded_for, self._context.settings.server.trusted_proxies)

    async def authorize(self, request: ProxyRequest, parsed: ParsedPath) -> AuthorizedRequest:
        """Raises NotAuthenticated, Forbidden, NotFound or Conflict."""
        secret, is_program = self._secret(request.headers)
        if not is_program:
            check_origin(request)
        address = self._cookie_address(request)
        user = await self._user(secret, parsed.target, address)
        if not is_program:
            await self._check_logins(request.headers, user)
        if parsed.target.service:
            route, *others = await self.load_balancer.ordered_routes(parsed.target, user, is_program=is_program)
            forwarding = self._forwarding(request, route)
            return AuthorizedRequest(user, secret, address, parsed, route, forwarding, tuple(others))
        route = await self._route(parsed.target)
        if user not in route.allowed_users:
            raise Forbidden("It belongs to another user.", "Ask the owner to share it with you.")
        return AuthorizedRequest(user, secret, address, parsed, route, self._forwarding(request, route))

    async def is_still_authorized(self, authorized: AuthorizedRequest) -> bool:
        """Whether an open request or WebSocket is still permitted."""
        target = authorized.parsed_path.target
        try:
            user = await self._user(authorized.secret, target, authorized.cookie_address)
            if target.service:  # a draining replica finishes its open requests
                return user in (await self.load_balancer.find_candidates(target)).allowed_users
            route = await self._route(target)
        except HeliostatError:
            return False
        return user in route.allowed_users and route.attempt.id == authorized.route.attempt.id

    def login_redirect(self, request: ProxyRequest, parsed: ParsedPath) -> tuple[str, str]:
        """URL of the login redirect, and the nonce cookie that is checked on return."""
        nonce = _text(cookie_value(request.headers, self._cookie_name(_NONCE))) or generate_secret()
        next_path = (request.raw_path + (b"?" + request.query if request.query else b"")).decode("latin-1")
        query = f"nonce={secret_digest(nonce)}&next={quote(next_path, safe='')}"
        url = f"{self._public_urls(request).control_url}/enter/{parsed.target.name}?{query}"
        return url, self._cookie(_NONCE, nonce, parsed.target, 600)

    async def redeem_entry_code(self, request: ProxyRequest, parsed: ParsedPath, code: str) -> str:
        """The session cookie in exchange for an entry code. Raises NotAuthenticated."""
        nonce = _text(cookie_value(request.headers, self._cookie_name(_NONCE)))
        credentials, target = (
            BrowserCredentials(nonce, _logins(request.headers), str(request.client)),
            parsed.target,
        )
        grants = self._context.authenticator.proxy_grants
        secret = await self._in_thread(lambda: grants.redeem_code(code[:_MAX_SECRET_LENGTH], target, credentials))
        return self._cookie(_COOKIE, secret, target, 7 * 24 * 3600)

    def control_page_url(self, request: ProxyRequest, target: ProxyTarget) -> str:
        """URL of the target's page in the control plane."""
        if target.service:
            return f"{self._public_urls(request).control_url}/services/{target.service}"
        kind = "sessions" if target.port is None else "jobs"
        return f"{self._public_urls(request).control_url}/{kind}/{target.job_id}"

    def _public_urls(self, request: ProxyRequest) -> PublicUrls:
        return self._context.public_urls.for_host(request.host.decode("latin-1"))

    def _secret(self, headers: Headers) -> tuple[str, bool]:
        """The secret, and whether it is a program's bearer token instead of a browser cookie."""
        values = header_values(headers, b"authorization")
        scheme, _, secret = _text(values[0]).partition(" ") if len(values) == 1 else ("", "", "")
        if scheme.lower() == "bearer" and secret:
            return secret.strip(), True
        return _text(cookie_value(headers, self._cookie_name(_COOKIE))), False

    async def _user(self, secret: str, target: ProxyTarget, address: str | None) -> str:
        if secret and self._context.authenticator.proxy_grants.is_cached(secret):
            return self._require_user(secret, target, address)
        return await self._in_thread(lambda: self._require_user(secret, target, address))

    def _cookie_address(self, request: ProxyRequest) -> str | None:
        """The address at which a cookie must have been set; None: it was encrypted, so it cannot be copied."""
        return None if self._context.public_urls.is_encrypted else str(request.client)

    async def _check_logins(self, headers: Headers, user: str) -> None:
        """Raises NotAuthenticated if another user is logged in: the proxy cookie was then planted."""
        grants, logins = self._context.authenticator.proxy_grants, _logins(headers)
        if grants.are_logins_cached(logins):
            is_same_user = grants.are_logins_of(user, logins)
        else:
            is_same_user = await self._in_thread(lambda: grants.are_logins_of(user, logins))
        if not is_same_user:
            raise NotAuthenticated("Another user is logged in in this browser.", "Open it from its page.")

    def _require_user(self, secret: str, target: ProxyTarget, address: str | None) -> str:
        if not secret:
            raise NotAuthenticated("Please log in.", "Run `helio web`, then open it from its page.")
        return self._context.authenticator.proxy_grants.require_user(secret, target, address).name

    async def _route(self, target: ProxyTarget) -> ProxyRoute:
        now = time.monotonic()
        cached = self._routes.get(target)
        if cached is not None and now - cached[0] < _ROUTE_CACHE_SECONDS:
            return cached[1]
        self._routes.pop(target, None)
        route = await self._in_thread(lambda: find_route(self._context, target))
        if len(self._routes) >= _MAX_CACHED_ROUTES:
            self._routes.clear()
        self._routes[target] = (now, route)
        return route

    def _forwarding(self, request: ProxyRequest, route: ProxyRoute) -> ForwardingContext:
        return ForwardingContext(
            prefix=route.target.path_prefix.encode(),
            keeps_prefix=route.keeps_path_prefix,
            scheme=b"https" if self._context.public_urls.is_encrypted else b"http",
            host=request.host,
            client=request.client.ip.encode("latin-1", "replace"),
            authorization=None
            if route.authorization_header is None
            else route.authorization_header.encode("latin-1"),
        )

    def _cookie_name(self, name: str) -> bytes:
        return (f"__Secure-{name}" if self._context.public_urls.is_encrypted else name).encode()

    def _cookie(self, name: str, value: str, target: ProxyTarget, seconds: int) -> str:
        secure = "; Secure" if self._context.public_urls.is_encrypted else ""
        full_name = self._cookie_name(name).decode()
        return f"{full_name}={value}; Path={target.path_prefix}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, call)


def check_origin(request: ProxyRequest) -> None:
    """Refuses cross-site requests: browsers add the cookie to them, and treat all ports of a host as one site."""
    headers, host = request.headers, request.host.decode("latin-1")
    origins = header_values(headers, b"origin")
    is_foreign = any(urlsplit(origin.decode("latin-1")).netloc != host for origin in origins)
    if is_foreign or (request.is_upgrade and len(origins) != 1):
        raise Forbidden("This request came from another site.", "Open the page on this site and try again.")
    site = header_values(headers, b"sec-fetch-site")
    if not site or site[0] in (b"same-origin", b"none"):
        return
    is_navigation = header_values(headers, b"sec-fetch-mode") == [b"navigate"] and header_values(
        headers, b"sec-fetch-dest"
    ) == [b"document"]
    if request.method not in ("GET", "HEAD") or not is_navigation:
        raise Forbidden("This request came from another site.", "Open the page on this site and try again.")


def _logins(headers: Headers) -> tuple[str, ...]:
    """All login cookies, because others may be planted. A real browser has only a few."""
    logins = tuple(_text(value) for name in _LOGIN_COOKIES for value in cookie_values(headers, name))
    if len(logins) > _MAX_LOGINS:
        raise BadRequest("Too many login cookies.", "Delete the cookies of this site and log in again.")
    return logins


def _text(value: bytes) -> str:
    return value[:_MAX_SECRET_LENGTH].decode("latin-1")
