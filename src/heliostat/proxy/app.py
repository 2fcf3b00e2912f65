"""The ASGI application of the proxy: lets in, forwards, and streams both ways."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from heliostat.errors import Conflict, EngineUnavailable, HeliostatError, NotAuthenticated
from heliostat.models import JobState
from heliostat.models.sessions import ProxyTarget
from heliostat.proxy import pages
from heliostat.proxy.gate import Admitted, Gate, Request
from heliostat.proxy.headers import Header, request_headers, response_headers, values
from heliostat.proxy.paths import Asked, own_host, parse_path
from heliostat.proxy.pool import Pool
from heliostat.proxy.upstream import Connection, UpstreamLost, request_head
from heliostat.proxy.watch import ClientGone, Receive, Watch
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
        self.gate = Gate(context)
        self.pool = Pool(context)
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

    async def _answer(self, request: Request, receive: Receive, send: Send) -> None:
        if home := self._home(request):
            await _redirect(send, home)
            return
        asked = self.gate.asked(request)
        if not asked.rest:
            await _redirect(send, asked.target.path_prefix)
        elif asked.rest == f"/{ENTRY_PATH}".encode():
            await self._enter(request, asked, send)
        else:
            await _Exchange(self, await self.gate.admit(request, asked), request, receive, send).run()

    def _home(self, request: Request) -> str:
        """With a host name for each target: where its own paths begin."""
        addresses = self._context.public_urls
        if not addresses.has_host_per_target or request.raw_path != b"/":
            return ""
        target = own_host(request.host, urlsplit(addresses.proxy_url).netloc)
        return target.path_prefix if target else ""

    async def _enter(self, request: Request, asked: Asked, send: Send) -> None:
        query = parse_qs(asked.query.decode("latin-1"))
        goal = query.get("next", [""])[0]
        cookie = await self.gate.enter(request, asked, query.get("code", [""])[0])
        await _redirect(send, goal if _is_inside(goal, asked.target) else asked.target.path_prefix, cookie)

    async def _send_in(self, request: Request, error: NotAuthenticated, send: Send) -> None:
        """People go through the control plane; programs are told."""
        asked = self.gate.asked(request)
        if not pages.wants_page(request.method, request.headers) or asked.rest == f"/{ENTRY_PATH}".encode():
            await self._tell(request, error, send)
            return
        await _redirect(send, *self.gate.way_in(request, asked))

    async def _tell(self, request: Request, error: HeliostatError, send: Send) -> None:
        as_page = pages.wants_page(request.method, request.headers)
        asked = parse_path(request.raw_path, b"")
        if as_page and asked and asked.target.port is None and error.code in _EARLY:
            await _redirect(send, self.gate.page_of(request, asked.target))
            return
        link = self.gate.page_of(request, asked.target) if as_page and asked else ""
        headers, body = pages.fault(error, as_page, link)
        await _start(send, error.status or 500, headers)
        await send({"type": "http.response.body", "body": body})


class _Exchange:
    """One request and its answer."""

    def __init__(self, proxy: Proxy, admitted: Admitted, request: Request, receive: Receive, send: Send) -> None:
        self._proxy, self._admitted, self._request = proxy, admitted, request
        self._receive, self._send = receive, send
        self._has_started = self._has_sent = False
        self._has_body = _has_body(request)
        self._may_repeat = request.method in _REPEATABLE and not self._has_body

    async def run(self) -> None:
        try:
            await self._forward()
        except ClientGone:
            return
        except UpstreamLost as error:
            if self._has_started:
                raise  # the browser must see that the answer is cut off
            said = f"The server inside the job gave no answer: {error}."
            raise EngineUnavailable(said, "Look at the job's log.") from error

    async def _forward(self) -> None:
        """To one replica after the other, as long as nothing was done by halves."""
        *ways, last = (self._admitted.way, *self._admitted.others)
        for way in ways:
            try:
                await self._forward_to(way)
                return
            except (Conflict, EngineUnavailable):  # nothing was sent there
                self._proxy.gate.balancer.suspect(way)
            except UpstreamLost:
                self._proxy.gate.balancer.suspect(way)
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
            connection, was_used = await self._proxy.pool.connection(way, may_be_used=may_repeat)
            try:
                await self._exchange(connection)
                return
            except UpstreamLost:
                if not was_used or connection.has_begun:
                    raise
            finally:
                if self._has_body:  # whoever disagrees on where it ended has nobody else's request to add to
                    connection.close()
                self._proxy.pool.give_back(way, connection)

    async def _exchange(self, connection: Connection) -> None:
        connection.begin(self._request.method.encode())
        watch = Watch(self._receive, self._is_let_in)
        try:
            connection.write_at_once(self._head())
            if self._has_body:
                connection.keep_last_words()
                watch.send(self._send_body(connection))
            else:
                self._has_sent = True
                watch.look_later()
            await self._answer(connection)
            if not self._has_sent:
                connection.close()  # it has answered without reading all
        except BaseException as error:
            connection.close()
            if isinstance(error, asyncio.CancelledError) and watch.is_left():
                raise ClientGone from None
            raise
        finally:
            await watch.end()

    def _head(self) -> bytes:
        request, admitted = self._request, self._admitted
        headers = request_headers(request.headers, admitted.passing)
        if values(request.headers, b"transfer-encoding"):
            headers = [pair for pair in headers if pair[0] != b"content-length"]
            headers.append((b"transfer-encoding", b"chunked"))
        path = admitted.asked.upstream_path(admitted.way.keeps_path_prefix)
        return request_head(request.method.encode(), path, headers)

    async def _send_body(self, connection: Connection) -> None:
        """What the request carries, as it comes. Raises ClientGone."""
        is_chunked = bool(values(self._request.headers, b"transfer-encoding"))
        async for part in self._body():
            await connection.write(b"%x\r\n%b\r\n" % (len(part), part) if is_chunked else part)
        if is_chunked:
            await connection.write(b"0\r\n\r\n")
        self._has_sent = True

    async def _is_let_in(self) -> bool:
        return await self._proxy.gate.still(self._admitted)

    async def _body(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            more = message.get("more_body", False)
            if part := message.get("body", b""):
                yield part

    async def _answer(self, connection: Connection) -> None:
        head = await connection.head()
        if self._admitted.others and self._may_repeat:
            await connection.wait_if_small(_SMALL_BYTES)  # another replica may still answer instead
        self._has_started = True
        await _start(self._send, head.status, response_headers(head.headers, self._admitted.passing))
        is_last = False
        while not is_last:
            part = await connection.part()
            is_last = connection.is_complete
            await self._send({"type": "http.response.body", "body": part, "more_body": not is_last})


async def _start(send: Send, status: int, headers: list[Header]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _redirect(send: Send, address: str, cookie: str = "") -> None:
    await _start(send, 303, pages.redirect(address, cookie))
    await send({"type": "http.response.body", "body": b""})


def _request(scope: Message) -> Request:
    client = scope.get("client") or ("", 0)
    return Request(scope["method"], scope["raw_path"], scope["query_string"], scope["headers"], client[0])


def _has_body(request: Request) -> bool:
    lengths = values(request.headers, b"content-length")
    return bool(values(request.headers, b"transfer-encoding")) or any(length != b"0" for length in lengths)


def _is_inside(goal: str, target: ProxyTarget) -> bool:
    """An address of this target and of nobody else."""
    path, _, query = goal.partition("?")
    with contextlib.suppress(UnicodeEncodeError):
        asked = parse_path(path.encode("latin-1"), query.encode("latin-1"))
        return asked is not None and asked.target == target and bool(asked.rest)
    return False
