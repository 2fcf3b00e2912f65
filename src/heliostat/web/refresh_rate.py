"""How fast live pages refresh: as fast as the server can without others noticing.

Each page waits for its turn before it is told of a change. What a refresh takes is measured, and turns follow each
other so that all refreshes together take a bounded part of one core, whatever the pages show.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_CPU_FRACTION = 0.5  # of one core, for all refreshes together
_LEAST_SECONDS = 0.005
_MOST_SECONDS = 0.25
_FIRST_GUESS = 0.02
_PATIENCE_SECONDS = 1.0
_WEIGHT = 0.1  # of the newest refresh in the average


class RefreshRateLimiter:
    """All of it happens in the event loop."""

    def __init__(self) -> None:
        self._next_turn = 0.0
        self._seconds_each = _FIRST_GUESS
        self._one_at_a_time = asyncio.Semaphore(1)

    @property
    def interval_seconds(self) -> float:
        return min(max(self._seconds_each / MAX_CPU_FRACTION, _LEAST_SECONDS), _MOST_SECONDS)

    async def wait_for_slot(self) -> None:
        """Wait for one's turn to refresh: one page after the other, never all at once."""
        now = asyncio.get_running_loop().time()
        mine = max(now, self._next_turn)
        self._next_turn = mine + self.interval_seconds
        await asyncio.sleep(mine - now)

    def record_duration(self, seconds: float) -> None:
        self._seconds_each += _WEIGHT * (seconds - self._seconds_each)

    @asynccontextmanager
    async def exclusive_slot(self) -> AsyncIterator[Callable[[], None]]:
        """One after the other, unless it takes too long; the next may begin once what this gives is called."""
        is_mine = await self._patiently()
        began = time.perf_counter()

        def made() -> None:
            nonlocal is_mine
            if is_mine:
                is_mine = False
                self.record_duration(time.perf_counter() - began)
                self._one_at_a_time.release()

        try:
            yield made
        finally:
            made()

    async def _patiently(self) -> bool:
        try:
            return await asyncio.wait_for(self._one_at_a_time.acquire(), _PATIENCE_SECONDS)
        except TimeoutError:
            return False


class SerialRefreshMiddleware:
    """Parts of pages are made one after the other: many at once would only take turns at the interpreter."""

    def __init__(self, app: ASGIApp, pace: RefreshRateLimiter) -> None:
        self._app, self._pace = app, pace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_refresh(scope):
            await self._app(scope, receive, send)
            return
        async with self._pace.exclusive_slot() as made:

            async def tell(message: Message) -> None:
                made()  # a slow reader keeps nobody waiting
                await send(message)

            await self._app(scope, receive, tell)


def _is_refresh(scope: Scope) -> bool:
    """Whoever sends something may take their time, so only who asks for something is put into the row."""
    if scope["type"] != "http" or scope["method"] != "GET" or scope["path"].startswith(("/api/", "/live")):
        return False
    return any(name == b"x-fragment" for name, _ in scope["headers"])
