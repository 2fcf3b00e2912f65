"""WebSocket tunnel: the handshake is checked, then bytes are forwarded unchanged in both directions.

So subprotocols, extensions, close codes and pings work end to end. Until the server in the job accepts the
upgrade, it receives only the handshake request; any other response is forwarded as a plain HTTP response.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, cast

import httptools

from heliostat.auth.client_address import Connection
from heliostat.errors import BadRequest, Conflict, EngineUnavailable, HeliostatError
from heliostat.proxy import error_responses
from heliostat.proxy.access_control import AuthorizedRequest, ProxyRequest
from heliostat.proxy.app import Proxy
from heliostat.proxy.client_watch import ACCESS_CHECK_SECONDS
from heliostat.proxy.headers import UPGRADE_HEADERS, Header, filter_request_headers, filter_response_headers
from heliostat.proxy.upstream import encode_request_head
from heliostat.server_log import get_logger
from heliostat.services.proxy_routes import ProxyRoute

log = get_logger()
_MAX_HEAD_BYTES = 64 * 1024
_RESPONSE_SECONDS = 60.0


class WebSocketTunnel(asyncio.Protocol):
    """The browser's end. Created by the HTTP server, which passes the request head."""

    def __init__(self, proxy: Proxy, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
        self._proxy = proxy
        self._connections: set[Any] = server_state.connections
        self._tasks: set[Any] = server_state.tasks
        self._upstream: _UpstreamEnd | None = None
        self._early = b""  # from the browser, before the upgrade is accepted
        self._has_head = False
        self._counting = contextlib.ExitStack()
        self.transport: asyncio.Transport
        self.on_disconnect: Callable[[], None] = lambda: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        if not self._has_head:
            self._has_head = True
            task = asyncio.ensure_future(self._run(data))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif self._upstream is not None and self._upstream.is_upgraded:
            _write(self._upstream.transport, data)
        else:
            self._early += data
            if len(self._early) > _MAX_HEAD_BYTES:
                self.transport.abort()

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self.on_disconnect()
        if self._upstream is not None:
            self._upstream.disconnect()

    def pause_writing(self) -> None:
        if self._upstream is not None:
            self._upstream.pause_reading()

    def resume_writing(self) -> None:
        if self._upstream is not None:
            self._upstream.resume_reading()

    def shutdown(self) -> None:
        """Called when the HTTP server stops."""
        self.transport.abort()

    def accept_upgrade(self, head: bytes) -> None:
        _write(self.transport, head)
        if self._early and self._upstream is not None:
            _write(self._upstream.transport, self._early)
            self._early = b""

    async def _run(self, head: bytes) -> None:
        try:
            with self._counting:
                request = self._parse(head)
                authorized = await self._proxy.access_control.authorize(
                    request, self._proxy.access_control.parse_request_path(request)
                )
                await self._connect(request, authorized)
                await self._until_closed(authorized)
        except HeliostatError as error:
            self.reject(error)
        except Exception as error:  # noqa: BLE001 - a background task
            log.error("tunnel_failed", error=repr(error))
            self.transport.abort()

    def _parse(self, head: bytes) -> ProxyRequest:
        parsed = _ParsedRequest()
        parser = httptools.HttpRequestParser(parsed)
        try:
            with contextlib.suppress(httptools.HttpParserUpgrade):
                parser.feed_data(head)
            url = httptools.parse_url(parsed.url)
        except (httptools.HttpParserError, httptools.HttpParserInvalidURLError):
            raise BadRequest("The request cannot be read.", "Send an HTTP/1.1 request.") from None
        if parser.get_method() != b"GET":
            raise BadRequest("A WebSocket handshake must be a GET request.", "Send a GET request.")
        ends = (self.transport.get_extra_info(name) or ("", 0) for name in ("peername", "sockname"))
        connection = Connection(*((str(end[0]), int(end[1])) for end in ends))
        client = self._proxy.access_control.find_client(connection, parsed.headers)
        return ProxyRequest("GET", url.path or b"/", url.query or b"", parsed.headers, client, is_upgrade=True)

    async def _connect(self, request: ProxyRequest, authorized: AuthorizedRequest) -> None:
        upstream = await self._open(authorized)
        if self.transport.is_closing():
            upstream.disconnect()
            return
        self._upstream = upstream
        path = authorized.parsed_path.upstream_path(authorized.route.keeps_path_prefix)
        headers = [*filter_request_headers(request.headers, authorized.forwarding), *UPGRADE_HEADERS]
        _write(upstream.transport, encode_request_head(b"GET", path, headers))

    async def _open(self, authorized: AuthorizedRequest) -> "_UpstreamEnd":
        """Connect to the first replica that accepts the connection."""
        *routes, last = (authorized.route, *authorized.other_routes)
        for route in routes:
            try:
                return await self._open_to(route, authorized)
            except (Conflict, EngineUnavailable):
                self._proxy.access_control.load_balancer.mark_suspect(route)
        return await self._open_to(last, authorized)

    async def _open_to(self, route: ProxyRoute, authorized: AuthorizedRequest) -> "_UpstreamEnd":
        upstream = await self._proxy.pool.open(route, lambda: _UpstreamEnd(self, authorized))
        if route.target.service:
            self._counting.enter_context(self._proxy.traffic.track_request(route.attempt.job.id))
        return upstream

    async def _until_closed(self, authorized: AuthorizedRequest) -> None:
        upstream = self._upstream
        if upstream is None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(upstream.has_response.wait(), _RESPONSE_SECONDS)
        if not upstream.has_response.is_set():
            upstream.disconnect()
            raise EngineUnavailable("The server in the job did not respond.", "See the log of the job.")
        while not upstream.closed.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(upstream.closed.wait(), ACCESS_CHECK_SECONDS)
            if not upstream.closed.is_set() and not await self._proxy.access_control.is_still_authorized(
                authorized
            ):
                self.transport.abort()
                upstream.disconnect()

    def reject(self, error: HeliostatError) -> None:
        headers, body = error_responses.error_response(error, as_page=False)
        length = (b"content-length", b"%d" % len(body))
        _write(self.transport, _plain_head(error.status or 500, [*headers, length]) + body)
        self.transport.close()


class _UpstreamEnd(asyncio.Protocol):
    """The connection to the server in the job."""

    def __init__(self, outer: WebSocketTunnel, authorized: AuthorizedRequest) -> None:
        self._outer, self._authorized = outer, authorized
        self._head = b""
        self.is_upgraded = False
        self.has_response, self.closed = asyncio.Event(), asyncio.Event()
        self.transport: asyncio.Transport
        self.on_disconnect: Callable[[], None] = lambda: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.has_response.is_set():
            _write(self._outer.transport, data)
            return
        self._head += data
        if b"\r\n\r\n" in self._head:
            self._read_head()
        elif len(self._head) > _MAX_HEAD_BYTES:
            self.disconnect()

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        if not self.has_response.is_set():
            self.has_response.set()
            self._outer.reject(
                EngineUnavailable("The server in the job closed the connection.", "See the log of the job.")
            )
        else:
            self._outer.transport.close()

    def pause_writing(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._outer.transport.pause_reading()

    def resume_writing(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._outer.transport.resume_reading()

    def pause_reading(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.transport.resume_reading()

    def disconnect(self) -> None:
        self.transport.abort()

    def _read_head(self) -> None:
        head, _, rest = self._head.partition(b"\r\n\r\n")
        parsed = _ParsedResponse()
        parser = httptools.HttpResponseParser(parsed)
        try:
            with contextlib.suppress(httptools.HttpParserUpgrade):
                parser.feed_data(head + b"\r\n\r\n")
            status = parser.get_status_code()
        except httptools.HttpParserError:
            self.disconnect()
            return
        headers = filter_response_headers(parsed.headers, self._authorized.forwarding)
        self.is_upgraded = status == 101
        self.has_response.set()
        if self.is_upgraded:
            self._outer.accept_upgrade(_plain_head(status, [*headers, *UPGRADE_HEADERS], closes=False) + rest)
        else:
            response = _plain_head(status, [*headers, *_framing(parsed.headers)])
            _write(self._outer.transport, response + rest)


class _ParsedResponse:
    def __init__(self) -> None:
        self.headers: list[Header] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))


class _ParsedRequest(_ParsedResponse):
    url = b""

    def on_url(self, url: bytes) -> None:
        self.url += url


def _write(transport: asyncio.Transport, data: bytes) -> None:
    if not transport.is_closing():
        transport.write(data)


def _plain_head(status: int, headers: list[Header], *, closes: bool = True) -> bytes:
    lines = [b"HTTP/1.1 %d %b\r\n" % (status, _REASONS.get(status, b"Refused"))]
    lines += [b"%b: %b\r\n" % pair for pair in headers]
    if closes:
        lines.append(b"connection: close\r\n")
    return b"".join([*lines, b"\r\n"])


def _framing(headers: list[Header]) -> list[Header]:
    """The body of a plain response is forwarded unchanged, so its framing header is kept."""
    return [pair for pair in headers if pair[0] == b"transfer-encoding"]


_REASONS = {101: b"Switching Protocols", 403: b"Forbidden", 404: b"Not Found", 401: b"Unauthorized"}
