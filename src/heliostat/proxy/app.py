"""The ASGI application of the proxy: lets in, forwards, and streams both ways."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

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
_EARLY = frozenset({"session_starting", "not_listening", *(f"job_{state}" for state in JobState)})
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
        request = _request(scope)
        try:
            await self._answer(request, receive, send)
        except NotAuthenticated as error:
            await self._send_in(request, error, send)
        except HeliostatError as error:
            await self._tell(request, error, send)

    async def _answer(self, request: ProxyRequest, receive: Receive, send: Send) -> None:
        if home := self._home(request):
            await _redirect(send, home)
            return
        asked = self.access_control.parse_request_path(request)
        if not asked.inner_path:
            await _redirect(send, asked.target.path_prefix)
        elif asked.inner_path == f"/{ENTRY_PATH}".encode():
            await self._enter(request, asked, send)
        else:
            await _Exchange(
                self, await self.access_control.authorize(request, asked), request, receive, send
            ).run()

    def _home(self, request: ProxyRequest) -> str:
        """With a host name for each target: where its own paths begin."""
        addresses = self._context.public_urls
        if not addresses.has_host_per_target or request.raw_path != b"/":
            return ""
        target = parse_target_host(request.host, urlsplit(addresses.proxy_url).netloc)
        return target.path_prefix if target else ""

    async def _enter(self, request: ProxyRequest, asked: ParsedPath, send: Send) -> None:
        query = parse_qs(asked.query.decode("latin-1"))
        goal = query.get("next", [""])[0]
        cookie = await self.access_control.redeem_entry_code(request, asked, query.get("code", [""])[0])
        await _redirect(send, goal if _is_inside(goal, asked.target) else asked.target.path_prefix, cookie)

    async def _send_in(self, request: ProxyRequest, error: NotAuthenticated, send: Send) -> None:
        """People go through the control plane; programs are told."""
        asked = self.access_control.parse_request_path(request)
        if (
            not error_responses.wants_html(request.method, request.headers)
            or asked.inner_path == f"/{ENTRY_PATH}".encode()
        ):
            await self._tell(request, error, send)
            return
        await _redirect(send, *self.access_control.login_redirect(request, asked))

    async def _tell(self, request: ProxyRequest, error: HeliostatError, send: Send) -> None:
        as_page = error_responses.wants_html(request.method, request.headers)
        asked = parse_path(request.raw_path, b"")
        if as_page and asked and asked.target.port is None and error.code in _EARLY:
            await _redirect(send, self.access_control.control_page_url(request, asked.target))
            return
        link = self.access_control.control_page_url(request, asked.target) if as_page and asked else ""
        headers, body = error_responses.error_response(error, as_page, link)
        await _start(send, error.status or 500, headers)
        await send({"type": "http.response.body", "body": body})


class _Exchange:
    """One request and its answer."""

    def __init__(
        self, proxy: Proxy, admitted: AuthorizedRequest, request: ProxyRequest, receive: Receive, send: Send
    ) -> None:
        self._proxy, self._admitted, self._request = proxy, admitted, request
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
                raise  # the browser must see that the answer is cut off
            said = f"The server inside the job gave no answer: {error}."
            raise EngineUnavailable(said, "Look at the job's log.") from error

    async def _forward(self) -> None:
        """To one replica after the other, as long as nothing was done by halves."""
        *ways, last = (self._admitted.route, *self._admitted.other_routes)
        for way in ways:
            try:
                await self._forward_to(way)
                return
            except (Conflict, EngineUnavailable):  # nothing was sent there
                self._proxy.access_control.load_balancer.mark_suspect(way)
            except UpstreamDisconnected:
                self._proxy.access_control.load_balancer.mark_suspect(way)
                if self._has_started or not self._may_repeat:
                    raise
        await self._forward_to(last)

    async def _forward_to(self, way: ProxyRoute) -> None:
        if not way.target.service:
            await self._forward_on(way)
            return
        with self._proxy.traffic.track_request(way.attempt.job.id):
            await self._forward_on(way)

    async def _forward_on(self, way: ProxyRoute) -> None:
        may_repeat = self._may_repeat
        while True:
            connection, was_used = await self._proxy.pool.acquire(way, may_be_used=may_repeat)
            try:
                await self._exchange(connection)
                return
            except UpstreamDisconnected:
                if not was_used or connection.has_received_data:
                    raise
            finally:
                if self._has_body:  # whoever disagrees on where it ended has nobody else's request to add to
                    connection.close()
                self._proxy.pool.release(way, connection)

    async def _exchange(self, connection: UpstreamConnection) -> None:
        connection.begin_request(self._request.method.encode())
        watch = ClientWatch(self._receive, self._is_let_in)
        try:
            connection.write_nowait(self._head())
            if self._has_body:
                connection.keep_unread_response()
                watch.send_body(self._send_body(connection))
            else:
                self._has_sent = True
                watch.watch_for_disconnect()
            await self._answer(connection)
            if not self._has_sent:
                connection.close()  # it has answered without reading all
        except BaseException as error:
            connection.close()
            if isinstance(error, asyncio.CancelledError) and watch.was_cancelled_by_watch():
                raise ClientDisconnected from None
            raise
        finally:
            await watch.stop()

    def _head(self) -> bytes:
        request, admitted = self._request, self._admitted
        headers = filter_request_headers(request.headers, admitted.forwarding)
        if header_values(request.headers, b"transfer-encoding"):
            headers = [pair for pair in headers if pair[0] != b"content-length"]
            headers.append((b"transfer-encoding", b"chunked"))
        path = admitted.parsed_path.upstream_path(admitted.route.keeps_path_prefix)
        return encode_request_head(request.method.encode(), path, headers)

    async def _send_body(self, connection: UpstreamConnection) -> None:
        """What the request carries, as it comes. Raises ClientGone."""
        is_chunked = bool(header_values(self._request.headers, b"transfer-encoding"))
        async for part in self._body():
            await connection.write(b"%x\r\n%b\r\n" % (len(part), part) if is_chunked else part)
        if is_chunked:
            await connection.write(b"0\r\n\r\n")
        self._has_sent = True

    async def _is_let_in(self) -> bool:
        return await self._proxy.access_control.is_still_authorized(self._admitted)

    async def _body(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            more = message.get("more_body", False)
            if part := message.get("body", b""):
                yield part

    async def _answer(self, connection: UpstreamConnection) -> None:
        head = await connection.read_head()
        if self._admitted.other_routes and self._may_repeat:
            await connection.wait_for_small_body(_SMALL_BYTES)  # another replica may still answer instead
        self._has_started = True
        await _start(self._send, head.status, filter_response_headers(head.headers, self._admitted.forwarding))
        is_last = False
        while not is_last:
            part = await connection.read_body_part()
            is_last = connection.is_complete
            await self._send({"type": "http.response.body", "body": part, "more_body": not is_last})


async def _start(send: Send, status: int, headers: list[Header]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _redirect(send: Send, address: str, cookie: str = "") -> None:
    await _start(send, 303, error_responses.redirect_headers(address, cookie))
    await send({"type": "http.response.body", "body": b""})


def _request(scope: Message) -> ProxyRequest:
    client = scope.get("client") or ("", 0)
    return ProxyRequest(scope["method"], scope["raw_path"], scope["query_string"], scope["headers"], client[0])


def _has_body(request: ProxyRequest) -> bool:
    lengths = header_values(request.headers, b"content-length")
    return bool(header_values(request.headers, b"transfer-encoding")) or any(length != b"0" for length in lengths)


def _is_inside(goal: str, target: ProxyTarget) -> bool:
    """An address of this target and of nobody else."""
    path, _, query = goal.partition("?")
    with contextlib.suppress(UnicodeEncodeError):
        asked = parse_path(path.encode("latin-1"), query.encode("latin-1"))
        return asked is not None and asked.target == target and bool(asked.inner_path)
    return False
