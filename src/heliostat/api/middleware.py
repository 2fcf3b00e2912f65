"""Around every request: a limit on its size, and the time it took."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heliostat.errors import TooLarge

_STRANGERS_BYTES = 64 * 2**10
_PASSWORDS_BYTES = 2**20  # not looked at yet
_FORMS_BYTES = 4 * 2**20  # of a browser that is logged in
_HEARD_OUT_BYTES = 2**20  # of what is refused: an answer is lost on a connection that is closed amid sending
_HEARD_OUT_SECONDS = 2.0


class BodyLimitMiddleware:
    """Refuses bodies over the limit, also those that do not say how long they are.

    Bodies are read and parsed before it is known who sent them, and all others wait meanwhile. So tokens and
    cookies are looked at first: anybody can make one up. A password takes too long for that and gets some room.
    """

    def __init__(
        self,
        app: ASGIApp,
        limit_bytes: int,
        tell: Callable[[Request, TooLarge, int], Awaitable[Response]],
        is_known: Callable[[Request], bool],
        stream_limits: Mapping[str, Callable[[], int]] | None = None,
    ) -> None:
        self._app = app
        self._most = limit_bytes
        self._tell = tell
        self._is_known = is_known
        self._stream_limits = stream_limits or {}  # by path: bodies that nobody holds in memory as a whole

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
            # FastAPI turns whatever happens while it reads a body into a 400: the true answer takes its place.
            nonlocal refused
            if message["type"] == "http.response.start" and received > limit:
                refused = True
                await self._refuse(scope, receive, send, limit)
            elif not refused:
                await send(message)

        await self._app(scope, limited, corrected)

    def _limit(self, scope: Scope, headers: Mapping[bytes, bytes]) -> int:
        own = self._stream_limits.get(scope.get("path", ""))
        most = own() if own else self._most
        if "peer_uid" in scope.get("state", {}):
            return most
        kind = headers.get(b"authorization", b"").partition(b" ")[0].lower()
        if kind == b"basic":
            return min(self._most, _PASSWORDS_BYTES)
        shows_some = kind == b"bearer" or b"helio_session=" in headers.get(b"cookie", b"")
        if scope["method"] in ("GET", "HEAD") or not shows_some or not self._is_known(Request(scope)):
            return min(self._most, _STRANGERS_BYTES)
        return most if kind == b"bearer" else min(self._most, _FORMS_BYTES)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, limit: int) -> None:
        await _hear_out(receive)
        answer = await self._tell(Request(scope), _too_large(limit), TooLarge.status)
        await answer(scope, _nothing_more, send)


async def _hear_out(receive: Receive) -> None:
    heard = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_HEARD_OUT_SECONDS):
            while heard < _HEARD_OUT_BYTES:
                message = await receive()
                heard += len(message.get("body", b""))
                if not message.get("more_body"):
                    return


async def _nothing_more() -> Message:
    return {"type": "http.disconnect"}


def _too_large(limit: int) -> TooLarge:
    size = f"{limit // 2**20} MiB" if limit >= 2**20 else f"{limit // 2**10} KiB, which needs a login"
    return TooLarge(
        f"The request is larger than {size}.", "Send fewer jobs at once, or put large data into files."
    )


class ServerTimingMiddleware:
    """Says in a header how long the server worked until its answer began."""

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
