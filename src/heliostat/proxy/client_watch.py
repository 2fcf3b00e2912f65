"""While an answer is on its way: does somebody still wait for it, and may they? Costs little if it comes soon."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

from heliostat.proxy.upstream import UpstreamDisconnected

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
ACCESS_CHECK_SECONDS = 5.0  # how long somebody may go on who is no longer let in
_SOON_SECONDS = 0.25  # an answer that has come by then needs no watch


class ClientDisconnected(Exception):
    """Nobody waits for the answer any more."""


class ClientWatch:
    """Beside the task that made it, which is cancelled when nobody waits any more, or who waits may not."""

    def __init__(self, receive: Receive, is_let_in: Callable[[], Awaitable[bool]]) -> None:
        self._receive, self._is_let_in = receive, is_let_in
        self._loop = asyncio.get_running_loop()
        self._waiting = asyncio.current_task()
        self._tasks: list[asyncio.Task[None]] = []
        self._looks_too = False
        self._later = self._loop.call_later(_SOON_SECONDS, self._begin)
        self._has_left = self._is_over = False

    def watch_for_disconnect(self) -> None:
        """For a request that carries nothing."""
        self._looks_too = True

    def send_body(self, sending: Coroutine[Any, Any, None]) -> None:
        """What the request carries; after that, look whether they are still there."""
        self._add(lambda: self._send_then_look(sending))

    def was_cancelled_by_watch(self) -> bool:
        """Whether it was we who cancelled the task; then it goes on as if it had not been."""
        if self._has_left and self._waiting is not None:
            self._waiting.uncancel()
        return self._has_left

    async def stop(self) -> None:
        self._is_over = True
        self._later.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self) -> None:
        """It takes a while."""
        self._add(self._until_shut_out)
        if self._looks_too:
            self._add(self._until_gone)

    def _add(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks.append(self._loop.create_task(make()))

    async def _send_then_look(self, sending: Coroutine[Any, Any, None]) -> None:
        try:
            await sending
        except ClientDisconnected:
            self._leave()
            return
        except UpstreamDisconnected:  # it may have answered before
            return
        await self._until_gone()

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    async def _until_shut_out(self) -> None:
        await asyncio.sleep(ACCESS_CHECK_SECONDS)
        while await self._is_let_in():
            await asyncio.sleep(ACCESS_CHECK_SECONDS)
        self._leave()

    def _leave(self) -> None:
        if self._waiting is not None and not (self._has_left or self._is_over):
            self._has_left = True
            self._waiting.cancel()
