"""Watches the client of a proxied request: cancels it when the client disconnects or loses its permission."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

from heliostat.proxy.upstream import UpstreamDisconnected

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
ACCESS_CHECK_SECONDS = 5.0  # how long a client without permission may continue
_START_SECONDS = 0.25  # faster responses need no watch


class ClientDisconnected(Exception):
    """The client no longer waits for the response."""


class ClientWatch:
    """Cancels the task that created it when the client disconnects or is no longer authorized."""

    def __init__(self, receive: Receive, is_authorized: Callable[[], Awaitable[bool]]) -> None:
        self._receive, self._is_authorized = receive, is_authorized
        self._loop = asyncio.get_running_loop()
        self._request_task = asyncio.current_task()
        self._tasks: list[asyncio.Task[None]] = []
        self._watches_disconnect = False
        self._timer = self._loop.call_later(_START_SECONDS, self._begin)
        self._has_cancelled = self._is_stopped = False

    def watch_for_disconnect(self) -> None:
        """For a request without a body."""
        self._watches_disconnect = True

    def send_body(self, sending: Coroutine[Any, Any, None]) -> None:
        """Send the request body, then watch for a disconnect."""
        self._add(lambda: self._send_then_watch(sending))

    def was_cancelled_by_watch(self) -> bool:
        """Whether the watch cancelled the task; the cancellation is then revoked."""
        if self._has_cancelled and self._request_task is not None:
            self._request_task.uncancel()
        return self._has_cancelled

    async def stop(self) -> None:
        self._is_stopped = True
        self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self) -> None:
        """The response is slow: start watching."""
        self._add(self._until_unauthorized)
        if self._watches_disconnect:
            self._add(self._until_disconnected)

    def _add(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks.append(self._loop.create_task(make()))

    async def _send_then_watch(self, sending: Coroutine[Any, Any, None]) -> None:
        try:
            await sending
        except ClientDisconnected:
            self._cancel()
            return
        except UpstreamDisconnected:  # it may already have responded
            return
        await self._until_disconnected()

    async def _until_disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._cancel()

    async def _until_unauthorized(self) -> None:
        await asyncio.sleep(ACCESS_CHECK_SECONDS)
        while await self._is_authorized():
            await asyncio.sleep(ACCESS_CHECK_SECONDS)
        self._cancel()

    def _cancel(self) -> None:
        if self._request_task is not None and not (self._has_cancelled or self._is_stopped):
            self._has_cancelled = True
            self._request_task.cancel()
