"""WebSockets: the handshake is looked at, then bytes go both ways as they are.

So subprotocols, extensions, close codes and pings are those of the two ends. Until the server inside has agreed to
the upgrade nothing but our own request reaches it, and what it answers instead is passed on as a plain answer.
"""

import asyncio
import contextlib
from typing import Any, cast

import httptools

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
_LONGEST_HEAD = 64 * 1024
_ANSWER_SECONDS = 60.0


class WebSocketTunnel(asyncio.Protocol):
    """The browser's end. Made by the HTTP server, which hands over the request it has read."""

    def __init__(self, proxy: Proxy, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
        self._proxy = proxy
        self._connections: set[Any] = server_state.connections
        self._tasks: set[Any] = server_state.tasks
        self._inner: _Inner | None = None
        self._early = b""  # from the browser, before the server inside has agreed
        self._has_head = False
        self._counting = contextlib.ExitStack()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        if not self._has_head:
            self._has_head = True
            task = asyncio.ensure_future(self._run(data))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif self._inner is not None and self._inner.has_agreed:
            _write(self._inner.transport, data)
        else:
            self._early += data
            if len(self._early) > _LONGEST_HEAD:
                self.transport.abort()

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if self._inner is not None:
            self._inner.leave()

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.hold()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.go_on()

    def shutdown(self) -> None:
        """The HTTP server stops."""
        self.transport.abort()

    def accept_upgrade(self, head: bytes) -> None:
        _write(self.transport, head)
        if self._early and self._inner is not None:
            _write(self._inner.transport, self._early)
            self._early = b""

    async def _run(self, head: bytes) -> None:
        try:
            with self._counting:
                request = _parse(head, self.transport)
                admitted = await self._proxy.access_control.authorize(
                    request, self._proxy.access_control.parse_request_path(request)
                )
                await self._connect(request, admitted)
                await self._until_over(admitted)
        except HeliostatError as error:
            self.reject(error)
        except Exception as error:  # noqa: BLE001 - a task nobody waits for
            log.error("tunnel_failed", error=repr(error))
            self.transport.abort()

    async def _connect(self, request: ProxyRequest, admitted: AuthorizedRequest) -> None:
        inner = await self._open(admitted)
        if self.transport.is_closing():
            inner.leave()
            return
        self._inner = inner
        path = admitted.parsed_path.upstream_path(admitted.route.keeps_path_prefix)
        headers = [*filter_request_headers(request.headers, admitted.forwarding), *UPGRADE_HEADERS]
        _write(inner.transport, encode_request_head(b"GET", path, headers))

    async def _open(self, admitted: AuthorizedRequest) -> "_Inner":
        """To the best replica that takes it."""
        *ways, last = (admitted.route, *admitted.other_routes)
        for way in ways:
            try:
                return await self._open_to(way, admitted)
            except (Conflict, EngineUnavailable):
                self._proxy.access_control.load_balancer.mark_suspect(way)
        return await self._open_to(last, admitted)

    async def _open_to(self, way: ProxyRoute, admitted: AuthorizedRequest) -> "_Inner":
        inner = await self._proxy.pool.open(way, lambda: _Inner(self, admitted))
        if way.target.service:
            self._counting.enter_context(self._proxy.traffic.track_request(way.attempt.job.id))
        return inner

    async def _until_over(self, admitted: AuthorizedRequest) -> None:
        inner = self._inner
        if inner is None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(inner.answered.wait(), _ANSWER_SECONDS)
        if not inner.answered.is_set():
            inner.leave()
            raise EngineUnavailable("The server inside the job gave no answer.", "Look at the job's log.")
        while not inner.over.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(inner.over.wait(), ACCESS_CHECK_SECONDS)
            if not inner.over.is_set() and not await self._proxy.access_control.is_still_authorized(admitted):
                self.transport.abort()
                inner.leave()

    def reject(self, error: HeliostatError) -> None:
        headers, body = error_responses.error_response(error, as_page=False)
        length = (b"content-length", b"%d" % len(body))
        _write(self.transport, _plain_head(error.status or 500, [*headers, length]) + body)
        self.transport.close()


class _Inner(asyncio.Protocol):
    """The end at the server inside the job."""

    def __init__(self, outer: WebSocketTunnel, admitted: AuthorizedRequest) -> None:
        self._outer, self._admitted = outer, admitted
        self._head = b""
        self.has_agreed = False
        self.answered, self.over = asyncio.Event(), asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.answered.is_set():
            _write(self._outer.transport, data)
            return
        self._head += data
        if b"\r\n\r\n" in self._head:
            self._read_head()
        elif len(self._head) > _LONGEST_HEAD:
            self.leave()

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set()
        if not self.answered.is_set():
            self.answered.set()
            self._outer.reject(EngineUnavailable("The server inside the job has hung up.", "Look at its log."))
        else:
            self._outer.transport.close()

    def pause_writing(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._outer.transport.pause_reading()

    def resume_writing(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._outer.transport.resume_reading()

    def hold(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.transport.pause_reading()

    def go_on(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.transport.resume_reading()

    def leave(self) -> None:
        self.transport.abort()

    def _read_head(self) -> None:
        head, _, rest = self._head.partition(b"\r\n\r\n")
        parsed = _Answer()
        parser = httptools.HttpResponseParser(parsed)
        try:
            with contextlib.suppress(httptools.HttpParserUpgrade):
                parser.feed_data(head + b"\r\n\r\n")
            status = parser.get_status_code()
        except httptools.HttpParserError:
            self.leave()
            return
        headers = filter_response_headers(parsed.headers, self._admitted.forwarding)
        self.has_agreed = status == 101
        self.answered.set()
        if self.has_agreed:
            self._outer.accept_upgrade(_plain_head(status, [*headers, *UPGRADE_HEADERS], closes=False) + rest)
        else:
            answer = _plain_head(status, [*headers, *_framing(parsed.headers)])
            _write(self._outer.transport, answer + rest)


class _Answer:
    def __init__(self) -> None:
        self.headers: list[Header] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))


class _Asked(_Answer):
    url = b""

    def on_url(self, url: bytes) -> None:
        self.url += url


def _parse(head: bytes, transport: asyncio.Transport) -> ProxyRequest:
    asked = _Asked()
    parser = httptools.HttpRequestParser(asked)
    try:
        with contextlib.suppress(httptools.HttpParserUpgrade):
            parser.feed_data(head)
        url = httptools.parse_url(asked.url)
    except (httptools.HttpParserError, httptools.HttpParserInvalidURLError):
        raise BadRequest("The request cannot be read.", "Send an HTTP/1.1 request.") from None
    if parser.get_method() != b"GET":
        raise BadRequest("A WebSocket begins with GET.", "Send a GET request.")
    peer = transport.get_extra_info("peername") or ("",)
    client = str(peer[0])
    return ProxyRequest("GET", url.path or b"/", url.query or b"", asked.headers, client, is_upgrade=True)


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
    """How long a plain answer is: its bytes are passed on as they are."""
    return [pair for pair in headers if pair[0] == b"transfer-encoding"]


_REASONS = {101: b"Switching Protocols", 403: b"Forbidden", 404: b"Not Found", 401: b"Unauthorized"}
