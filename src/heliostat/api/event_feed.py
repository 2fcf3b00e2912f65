"""Feeds the events of each database commit to followers in the event loop."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

from heliostat.models import JobEvent
from heliostat.store.database import Store, StoreChanges

_MAX_BUFFERED = 20_000  # events; a follower that is further behind must read them from the store


class FollowerTooSlow(Exception):
    """The follower was too slow and must read missed events from the store."""


class EventFollower:
    """Buffers events until `wait_for_events` is called."""

    def __init__(self) -> None:
        self._events: list[JobEvent] = []
        self._wakeup = asyncio.Event()
        self._behind = False

    async def wait_for_events(self, timeout_seconds: float) -> list[JobEvent]:
        """The events since the last call; empty after the timeout."""
        if not self._events and not self._behind:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_seconds):
                    await self._wakeup.wait()
        self._wakeup.clear()
        if self._behind:
            self._behind = False
            raise FollowerTooSlow
        events, self._events = self._events, []
        return events

    def wake(self) -> None:
        """Ends `wait_for_events` without an event."""
        self._wakeup.set()

    def add_events(self, events: Sequence[JobEvent]) -> None:
        if len(self._events) + len(events) > _MAX_BUFFERED:
            self._events, self._behind = [], True
        else:
            self._events += events
        self._wakeup.set()


class EventFeed:
    """All followers. Every method except `_on_commit` runs in the event loop."""

    def __init__(self, store: Store) -> None:
        self._followers: set[EventFollower] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        store.on_commit(self._on_commit)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def detach(self) -> None:
        self._loop = None

    @contextlib.contextmanager
    def follow(self) -> Iterator[EventFollower]:
        follower = EventFollower()
        self._followers.add(follower)
        try:
            yield follower
        finally:
            self._followers.discard(follower)

    def _on_commit(self, changes: StoreChanges) -> None:
        loop = self._loop
        if not changes.events or not self._followers or loop is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closing
            loop.call_soon_threadsafe(self._distribute, changes.events)

    def _distribute(self, events: Sequence[JobEvent]) -> None:
        for follower in self._followers:
            follower.add_events(events)
