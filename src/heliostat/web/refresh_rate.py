"""Rate limit of live page refreshes.

Pages are notified of a change one after the other. The duration of refreshes is measured, and the interval between
notifications is set so that all refreshes together use a bounded fraction of one core.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_CPU_FRACTION = 0.5  # of one core, for all refreshes together
_MIN_INTERVAL_SECONDS = 0.005
_MAX_INTERVAL_SECONDS = 0.25
_INITIAL_DURATION_SECONDS = 0.02
_MAX_WAIT_SECONDS = 1.0
_WEIGHT = 0.1  # of the newest refresh in the moving average


class RefreshRateLimiter:
    """Used only in the event loop."""

    def __init__(self) -> None:
        self._next_slot_at = 0.0
        self._mean_seconds = _INITIAL_DURATION_SECONDS
        self._semaphore = asyncio.Semaphore(1)

    @property
    def interval_seconds(self) -> float:
        return min(max(self._mean_seconds / MAX_CPU_FRACTION, _MIN_INTERVAL_SECONDS), _MAX_INTERVAL_SECONDS)

    async def wait_for_slot(self) -> None:
        """Wait for the next slot; slots are one interval apart."""
        now = asyncio.get_running_loop().time()
        slot_at = max(now, self._next_slot_at)
        self._next_slot_at = slot_at + self.interval_seconds
        await asyncio.sleep(slot_at - now)

    def record_duration(self, seconds: float) -> None:
        self._mean_seconds += _WEIGHT * (seconds - self._mean_seconds)

    @asynccontextmanager
    async def exclusive_slot(self) -> AsyncIterator[Callable[[], None]]:
        """One refresh at a time, unless the wait is too long. Call the returned function to release early."""
        is_acquired = await self._acquire()
        started = time.perf_counter()

        def release() -> None:
            nonlocal is_acquired
            if is_acquired:
                is_acquired = False
                self.record_duration(time.perf_counter() - started)
                self._semaphore.release()

        try:
            yield release
        finally:
            release()

    async def _acquire(self) -> bool:
        try:
            return await asyncio.wait_for(self._semaphore.acquire(), _MAX_WAIT_SECONDS)
        except TimeoutError:
            return False


class SerialRefreshMiddleware:
    """Renders page fragments one after the other: parallel rendering would only compete for the interpreter."""

    def __init__(self, app: ASGIApp, limiter: RefreshRateLimiter) -> None:
        self._app, self._limiter = app, limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_refresh(scope):
            await self._app(scope, receive, send)
            return
        async with self._limiter.exclusive_slot() as release:

            async def send_and_release(message: Message) -> None:
                release()  # a slow client must not block others
                await send(message)

            await self._app(scope, receive, send_and_release)


def _is_refresh(scope: Scope) -> bool:
    """Only GET requests are serialized: the body of another request may arrive slowly."""
    if scope["type"] != "http" or scope["method"] != "GET" or scope["path"].startswith(("/api/", "/live")):
        return False
    return any(name == b"x-fragment" for name, _ in scope["headers"])
