"""Middleware of all requests: the address of the client, limits of the body size, and the Server-Timing header."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heliostat.auth.client_address import Connection, find_client
from heliostat.errors import TooLarge

_ANONYMOUS_BYTES = 64 * 2**10
_PASSWORD_BYTES = 2**20  # a password is checked after the body is read
_FORM_BYTES = 4 * 2**20  # of a browser that is logged in
_DISCARDED_BYTES = 2**20  # read from a rejected body: closing the connection earlier would lose the response
_DISCARD_SECONDS = 2.0


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
    """Rejects bodies over the limit, also those without a Content-Length.

    A body is read and parsed before its sender is authenticated, and other requests wait meanwhile. Therefore
    tokens and cookies are checked here first. Checking a password takes too long: such requests have a lower
    limit.
    """

    def __init__(
        self,
        app: ASGIApp,
        limit_bytes: int,
        error_response: Callable[[Request, TooLarge, int], Awaitable[Response]],
        is_authenticated: Callable[[Request], bool],
        stream_limits: Mapping[str, Callable[[], int]] | None = None,
    ) -> None:
        self._app = app
        self._max_bytes = limit_bytes
        self._error_response = error_response
        self._is_authenticated = is_authenticated
        self._stream_limits = stream_limits or {}  # by path, for bodies that are never in memory as a whole

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        limit = self._limit(scope, headers)
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > limit:
            await self._refuse(scope, receive, send, limit)
            return
        received = 0
        refused = False

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise _too_large(limit)
            return message

        async def corrected(message: Message) -> None:
            # FastAPI responds with 400 to any exception while it reads a body: this sends 413 instead.
            nonlocal refused
            if message["type"] == "http.response.start" and received > limit:
                refused = True
                await self._refuse(scope, receive, send, limit)
            elif not refused:
                await send(message)

        await self._app(scope, limited, corrected)

    def _limit(self, scope: Scope, headers: Mapping[bytes, bytes]) -> int:
        stream_limit = self._stream_limits.get(scope.get("path", ""))
        max_bytes = stream_limit() if stream_limit else self._max_bytes
        if "peer_uid" in scope.get("state", {}):
            return max_bytes
        scheme = headers.get(b"authorization", b"").partition(b" ")[0].lower()
        if scheme == b"basic":
            return min(self._max_bytes, _PASSWORD_BYTES)
        has_credentials = scheme == b"bearer" or b"helio_session=" in headers.get(b"cookie", b"")
        if scope["method"] in ("GET", "HEAD") or not has_credentials or not self._is_authenticated(Request(scope)):
            return min(self._max_bytes, _ANONYMOUS_BYTES)
        return max_bytes if scheme == b"bearer" else min(self._max_bytes, _FORM_BYTES)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, limit: int) -> None:
        await _discard_body(receive)
        response = await self._error_response(Request(scope), _too_large(limit), TooLarge.status)
        await response(scope, _disconnected, send)


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


class ServerTimingMiddleware:
    """Adds a header with the time until the response started."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()

        async def timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                milliseconds = (time.perf_counter() - started) * 1000
                message["headers"] = [*message["headers"], (b"server-timing", b"app;dur=%.2f" % milliseconds)]
            await send(message)

        await self._app(scope, receive, timed)
