"""ASGI application of the proxy: authorizes requests, forwards them, and streams both directions."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from heliostat.auth.client_address import Connection
from heliostat.errors import Conflict, EngineUnavailable, HeliostatError, NotAuthenticated
from heliostat.models import JobState
from heliostat.models.sessions import ProxyTarget
from heliostat.proxy import error_responses
from heliostat.proxy.access_control import AccessControl, AuthorizedRequest, ProxyRequest
from heliostat.proxy.client_watch import ClientDisconnected, ClientWatch, Receive
from heliostat.proxy.connection_pool import ConnectionPool
from heliostat.proxy.headers import Header, filter_request_headers, filter_response_headers, header_values
from heliostat.proxy.paths import ParsedPath, parse_path, parse_target_host
from heliostat.proxy.upstream import UpstreamConnection, UpstreamDisconnected, encode_request_head
from heliostat.server_log import get_logger
from heliostat.services.context import Context
from heliostat.services.proxy_routes import ProxyRoute
from heliostat.services.public_urls import ENTRY_PATH

log = get_logger()
Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
_NOT_READY_CODES = frozenset({"session_starting", "not_listening", *(f"job_{state}" for state in JobState)})
_SMALL_BYTES = 256 * 1024
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})


class Proxy:
    def __init__(self, context: Context) -> None:
        self.access_control = AccessControl(context)
        self.pool = ConnectionPool(context)
        self.traffic = context.traffic
        self._context = context

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = self._request(scope)
        try:
            await self._handle(request, receive, send)
        except NotAuthenticated as error:
            await self._redirect_to_login(request, error, send)
        except HeliostatError as error:
            await self._send_error(request, error, send)

    def _request(self, scope: Message) -> ProxyRequest:
        headers = scope["headers"]
        client = self.access_control.find_client(Connection(scope["client"], scope["server"]), headers)
        return ProxyRequest(scope["method"], scope["raw_path"], scope["query_string"], headers, client)

    async def _handle(self, request: ProxyRequest, receive: Receive, send: Send) -> None:
        if target_path := self._target_path(request):
            await _redirect(send, target_path)
            return
        parsed = self.access_control.parse_request_path(request)
        if not parsed.inner_path:
            await _redirect(send, parsed.target.path_prefix)
        elif parsed.inner_path == f"/{ENTRY_PATH}".encode():
            await self._redeem_entry_code(request, parsed, send)
        else:
            await _Exchange(
                self, await self.access_control.authorize(request, parsed), request, receive, send
            ).run()

    def _target_path(self, request: ProxyRequest) -> str:
        """With one host name per target: the path prefix of the target for requests to `/`."""
        urls = self._context.public_urls
        if not urls.has_host_per_target or request.raw_path != b"/":
            return ""
        target = parse_target_host(request.host, urlsplit(urls.proxy_url).netloc)
        return target.path_prefix if target else ""

    async def _redeem_entry_code(self, request: ProxyRequest, parsed: ParsedPath, send: Send) -> None:
        query = parse_qs(parsed.query.decode("latin-1"))
        next_path = query.get("next", [""])[0]
        cookie = await self.access_control.redeem_entry_code(request, parsed, query.get("code", [""])[0])
        await _redirect(
            send, next_path if _belongs_to_target(next_path, parsed.target) else parsed.target.path_prefix, cookie
        )

    async def _redirect_to_login(self, request: ProxyRequest, error: NotAuthenticated, send: Send) -> None:
        """Browsers are redirected to the control plane; programs get an error."""
        parsed = self.access_control.parse_request_path(request)
        if (
            not error_responses.wants_html(request.method, request.headers)
            or parsed.inner_path == f"/{ENTRY_PATH}".encode()
        ):
            await self._send_error(request, error, send)
            return
        await _redirect(send, *self.access_control.login_redirect(request, parsed))

    async def _send_error(self, request: ProxyRequest, error: HeliostatError, send: Send) -> None:
        as_page = error_responses.wants_html(request.method, request.headers)
        parsed = parse_path(request.raw_path, b"")
        if as_page and parsed and parsed.target.port is None and error.code in _NOT_READY_CODES:
            await _redirect(send, self.access_control.control_page_url(request, parsed.target))
            return
        link = self.access_control.control_page_url(request, parsed.target) if as_page and parsed else ""
        headers, body = error_responses.error_response(error, as_page, link)
        await _start(send, error.status or 500, headers)
        await send({"type": "http.response.body", "body": body})


class _Exchange:
    """One request and its response."""

    def __init__(
        self, proxy: Proxy, authorized: AuthorizedRequest, request: ProxyRequest, receive: Receive, send: Send
    ) -> None:
        self._proxy, self._authorized, self._request = proxy, authorized, request
        self._receive, self._send = receive, send
        self._has_started = self._has_sent = False
        self._has_body = _has_body(request)
        self._may_repeat = request.method in _REPEATABLE and not self._has_body

    async def run(self) -> None:
        try:
            await self._forward()
        except ClientDisconnected:
            return
        except UpstreamDisconnected as error:
            if self._has_started:
                raise  # the browser must notice that the response is incomplete
            message = f"The server in the job did not respond: {error}."
            raise EngineUnavailable(message, "See the log of the job.") from error

    async def _forward(self) -> None:
        """Try one replica after the other, as long as the request can be repeated safely."""
        *routes, last = (self._authorized.route, *self._authorized.other_routes)
        for route in routes:
            try:
                await self._forward_to(route)
                return
            except (Conflict, EngineUnavailable):  # nothing was sent there
                self._proxy.access_control.load_balancer.mark_suspect(route)
            except UpstreamDisconnected:
                self._proxy.access_control.load_balancer.mark_suspect(route)
                if self._has_started or not self._may_repeat:
                    raise
        await self._forward_to(last)

    async def _forward_to(self, route: ProxyRoute) -> None:
        if not route.target.service:
            await self._forward_on_connection(route)
            return
        with self._proxy.traffic.track_request(route.attempt.job.id):
            await self._forward_on_connection(route)

    async def _forward_on_connection(self, route: ProxyRoute) -> None:
        may_repeat = self._may_repeat
        while True:
            connection, was_used = await self._proxy.pool.acquire(route, may_be_used=may_repeat)
            try:
                await self._exchange(connection)
                return
            except UpstreamDisconnected:
                if not was_used or connection.has_received_data:
                    raise
            finally:
                if (
                    self._has_body
                ):  # prevents request smuggling: the connection is not reused for another user's request
                    connection.close()
                self._proxy.pool.release(route, connection)

    async def _exchange(self, connection: UpstreamConnection) -> None:
        connection.begin_request(self._request.method.encode())
        watch = ClientWatch(self._receive, self._is_authorized)
        try:
            connection.write_nowait(self._head())
            if self._has_body:
                connection.keep_unread_response()
                watch.send_body(self._send_body(connection))
            else:
                self._has_sent = True
                watch.watch_for_disconnect()
            await self._send_response(connection)
            if not self._has_sent:
                connection.close()  # it responded without reading the whole body
        except BaseException as error:
            connection.close()
            if isinstance(error, asyncio.CancelledError) and watch.was_cancelled_by_watch():
                raise ClientDisconnected from None
            raise
        finally:
            await watch.stop()

    def _head(self) -> bytes:
        request, authorized = self._request, self._authorized
        headers = filter_request_headers(request.headers, authorized.forwarding)
        if header_values(request.headers, b"transfer-encoding"):
            headers = [pair for pair in headers if pair[0] != b"content-length"]
            headers.append((b"transfer-encoding", b"chunked"))
        path = authorized.parsed_path.upstream_path(authorized.route.keeps_path_prefix)
        return encode_request_head(request.method.encode(), path, headers)

    async def _send_body(self, connection: UpstreamConnection) -> None:
        """Streams the request body. Raises ClientDisconnected."""
        is_chunked = bool(header_values(self._request.headers, b"transfer-encoding"))
        async for part in self._body():
            await connection.write(b"%x\r\n%b\r\n" % (len(part), part) if is_chunked else part)
        if is_chunked:
            await connection.write(b"0\r\n\r\n")
        self._has_sent = True

    async def _is_authorized(self) -> bool:
        return await self._proxy.access_control.is_still_authorized(self._authorized)

    async def _body(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            more = message.get("more_body", False)
            if part := message.get("body", b""):
                yield part

    async def _send_response(self, connection: UpstreamConnection) -> None:
        head = await connection.read_head()
        if self._authorized.other_routes and self._may_repeat:
            await connection.wait_for_small_body(_SMALL_BYTES)  # until then another replica can still be tried
        self._has_started = True
        await _start(self._send, head.status, filter_response_headers(head.headers, self._authorized.forwarding))
        is_last = False
        while not is_last:
            part = await connection.read_body_part()
            is_last = connection.is_complete
            await self._send({"type": "http.response.body", "body": part, "more_body": not is_last})


async def _start(send: Send, status: int, headers: list[Header]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _redirect(send: Send, url: str, cookie: str = "") -> None:
    await _start(send, 303, error_responses.redirect_headers(url, cookie))
    await send({"type": "http.response.body", "body": b""})


def _has_body(request: ProxyRequest) -> bool:
    lengths = header_values(request.headers, b"content-length")
    return bool(header_values(request.headers, b"transfer-encoding")) or any(length != b"0" for length in lengths)


def _belongs_to_target(url: str, target: ProxyTarget) -> bool:
    """Whether the URL belongs to this target."""
    path, _, query = url.partition("?")
    with contextlib.suppress(UnicodeEncodeError):
        parsed = parse_path(path.encode("latin-1"), query.encode("latin-1"))
        return parsed is not None and parsed.target == target and bool(parsed.inner_path)
    return False
