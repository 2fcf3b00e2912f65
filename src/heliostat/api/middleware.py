"""Middleware of all requests: address of the client, limits of the body size, headers of all responses."""

import asyncio
import contextlib
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heliostat.auth.client_address import Connection, find_client
from heliostat.errors import HeliostatError, TooLarge
from heliostat.metrics import Histogram
from heliostat.server_log import bind_log_context
from heliostat.services.context import ConcurrencyLimit

_ANONYMOUS_BYTES = 64 * 2**10
_PASSWORD_BYTES = 2**20  # a password is checked after the body is read
_ORDINARY_BYTES = 4 * 2**20  # of forms of browsers, and of all paths that do not take larger bodies
_MAX_LARGE_BODIES = 8  # at the same time, one per user: a parsed body needs up to 25 times its size
_DISCARDED_BYTES = 2**20  # read from a rejected body: closing the connection earlier would lose the response
_DISCARD_SECONDS = 2.0
REQUEST_ID_HEADER = "X-Request-Id"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


class ClientAddressMiddleware:
    """Replaces the `client` of a request by what `find_client` says; behind a trusted proxy also the scheme."""

    def __init__(self, app: ASGIApp, trusted_proxies: Sequence[str]) -> None:
        self._app, self._trusted_proxies = app, trusted_proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("client"):
            headers = Headers(scope=scope)
            forwarded_for = ",".join(headers.getlist("x-forwarded-for"))
            connection = Connection(scope["client"], scope["server"])
            client = find_client(connection, forwarded_for, self._trusted_proxies)
            scope["client"] = (str(client), connection.client[1])
            if client.is_proxied and headers.get("x-forwarded-proto") == "https":
                scope["scheme"] = "https"
        await self._app(scope, receive, send)


class BodyLimitMiddleware:
    """Rejects bodies over the limit of their path, also those without a Content-Length.

    A body is read and parsed before its sender is authenticated, and other requests wait meanwhile. Therefore
    tokens and cookies are checked here first. Checking a password takes too long: such requests have a lower
    limit.
    """

    def __init__(
        self,
        app: ASGIApp,
        limit_bytes: int,
        error_response: Callable[[Request, HeliostatError, int], Awaitable[Response]],
        authenticate: Callable[[Request], str | None],
        large_paths: Collection[str] = (),
        stream_limit: Callable[[str], int | None] = lambda path: None,
    ) -> None:
        """`limit_bytes` applies to `large_paths`, `stream_limit` to bodies that are never in memory as a whole."""
        self._app = app
        self._max_bytes = limit_bytes
        self._error_response = error_response
        self._authenticate = authenticate
        self._large_paths = frozenset(large_paths)
        self._large_bodies = ConcurrencyLimit("large request", _MAX_LARGE_BODIES)
        self._stream_limit = stream_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        sender = self._sender(scope, headers)
        limit = self._limit(scope, headers, sender)
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > limit:
            await self._refuse(scope, receive, send, _too_large(limit))
            return
        with contextlib.ExitStack() as stack:
            body = _LimitedBody(receive, limit)
            if sender is not None and scope["path"] in self._large_paths:
                body.on_large = lambda: stack.enter_context(self._large_bodies.acquire(sender))
            refused = False

            async def corrected(message: Message) -> None:
                # FastAPI responds with 400 to any exception while it reads a body: this sends the real status.
                nonlocal refused
                if message["type"] == "http.response.start" and body.error is not None:
                    refused = True
                    await self._refuse(scope, receive, send, body.error)
                elif not refused:
                    await send(message)

            await self._app(scope, body.receive, corrected)

    def _sender(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str | None:
        """The user who sends a body; None: not authenticated, or by a password, which takes too long here."""
        if "peer_uid" in scope.get("state", {}):
            return f"uid {scope['state']['peer_uid']}"
        has_token = headers.get(b"authorization", b"")[:7].lower() == b"bearer "
        has_credentials = has_token or b"helio_session=" in headers.get(b"cookie", b"")
        if scope["method"] in ("GET", "HEAD") or not has_credentials:
            return None
        return self._authenticate(Request(scope))

    def _limit(self, scope: Scope, headers: Mapping[bytes, bytes], sender: str | None) -> int:
        if sender is None:
            is_password = headers.get(b"authorization", b"")[:6].lower() == b"basic "
            return min(self._max_bytes, _PASSWORD_BYTES if is_password else _ANONYMOUS_BYTES)
        if (stream_limit := self._stream_limit(scope["path"])) is not None:
            return stream_limit
        return self._max_bytes if scope["path"] in self._large_paths else min(self._max_bytes, _ORDINARY_BYTES)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, error: HeliostatError) -> None:
        await _discard_body(receive)
        response = await self._error_response(Request(scope), error, error.status)
        await response(scope, _disconnected, send)


class _LimitedBody:
    """Raises while it is received: TooLarge at its limit, and whatever `on_large` raises."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._limit, self._received = receive, limit, 0
        self.on_large: Callable[[], object] | None = None
        self.error: HeliostatError | None = None

    async def receive(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        try:
            if self._received > self._limit:
                raise _too_large(self._limit)
            if self._received > _ORDINARY_BYTES and self.on_large is not None:
                on_large, self.on_large = self.on_large, None
                on_large()
        except HeliostatError as error:
            self.error = error
            raise
        return message


async def _discard_body(receive: Receive) -> None:
    received = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_SECONDS):
            while received < _DISCARDED_BYTES:
                message = await receive()
                received += len(message.get("body", b""))
                if not message.get("more_body"):
                    return


async def _disconnected() -> Message:
    return {"type": "http.disconnect"}


def _too_large(limit: int) -> TooLarge:
    if limit < 2**20:
        return TooLarge(
            f"The request is larger than {limit // 2**10} KiB.",
            "Log in: requests without a login must be smaller.",
        )
    return TooLarge(
        f"The request is larger than {limit // 2**20} MiB.",
        "Send fewer jobs at once, or put large data into files.",
    )


class RequestRecordMiddleware:
    """Gives each request an id, records its duration, and adds both to the response, with a notice for all users.

    At the metrics address there is nothing but metrics.
    """

    def __init__(
        self, app: ASGIApp, notice: Callable[[], str], seconds: Histogram, metrics_paths: Collection[str]
    ) -> None:
        """`notice`: empty if there is none."""
        self._app, self._notice, self._seconds = app, notice, seconds
        self._metrics_paths = frozenset(metrics_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        state = scope.setdefault("state", {})
        request_id = state["request_id"] = _request_id(Headers(scope=scope))
        bind_log_context(request_id=request_id)  # of this request's own task

        async def record(message: Message) -> None:
            if message["type"] == "http.response.start":
                seconds = time.perf_counter() - started
                self._seconds.observe(seconds, *_labels(scope, message["status"]))
                message["headers"] = [*message["headers"], *self._headers(seconds, request_id)]
            await send(message)

        app = self._app
        if state.get("is_metrics_address") and scope["path"] not in self._metrics_paths:
            app = _not_here
        try:
            await app(scope, receive, record)
        except Exception:
            self._seconds.observe(time.perf_counter() - started, *_labels(scope, 500))
            raise

    def _headers(self, seconds: float, request_id: str) -> list[tuple[bytes, bytes]]:
        headers = [
            (b"server-timing", b"app;dur=%.2f" % (seconds * 1000)),
            (REQUEST_ID_HEADER.lower().encode(), request_id.encode()),
        ]
        if notice := self._notice():
            headers.append((b"heliostat-notice", notice.encode("ascii", "replace")))
        return headers


def _request_id(headers: Headers) -> str:
    """That of the client, if it is one plain word: it is written to the log."""
    sent = headers.getlist(REQUEST_ID_HEADER)
    return sent[0] if len(sent) == 1 and _REQUEST_ID.fullmatch(sent[0]) else uuid.uuid4().hex


def _labels(scope: Scope, status: int) -> tuple[str, str, str]:
    """Method, path template of the route and class of the status: whatever clients send, they are few."""
    method = scope["method"] if scope["method"] in _METHODS else "other"
    # `route` alone has the path without the prefix of its router.
    route = scope.get("fastapi", {}).get("effective_route_context") or scope.get("route")
    return method, getattr(route, "path", "other"), f"{status // 100}xx"


async def _not_here(scope: Scope, receive: Receive, send: Send) -> None:
    text = "This address serves /metrics, /healthz and /readyz.\n"
    await Response(text, 404, media_type="text/plain")(scope, receive, send)
