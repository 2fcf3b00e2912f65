"""From the thread that commits to those who follow: each commit's events, handed to the event loop."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

from heliostat.models import JobEvent
from heliostat.store.database import Store, StoreChanges

_MOST_WAITING = 20_000  # events a slow follower may be behind before it is told to read them from the store


class FollowerTooSlow(Exception):
    """The follower was too slow; it must read what it missed from the store."""


class EventFollower:
    """Collects events until its owner asks for them."""

    def __init__(self) -> None:
        self._events: list[JobEvent] = []
        self._some = asyncio.Event()
        self._behind = False

    async def wait_for_events(self, timeout_seconds: float) -> list[JobEvent]:
        """The events since the last call; none when the time is over."""
        if not self._events and not self._behind:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_seconds):
                    await self._some.wait()
        self._some.clear()
        if self._behind:
            self._behind = False
            raise FollowerTooSlow
        events, self._events = self._events, []
        return events

    def wake(self) -> None:
        """Wake the owner though nothing was committed."""
        self._some.set()

    def add_events(self, events: Sequence[JobEvent]) -> None:
        if len(self._events) + len(events) > _MOST_WAITING:
            self._events, self._behind = [], True
        else:
            self._events += events
        self._some.set()


class EventFeed:
    """Who follows. All but `_on_commit` happens in the event loop."""

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
            loop.call_soon_threadsafe(self._hand_out, changes.events)

    def _hand_out(self, events: Sequence[JobEvent]) -> None:
        for follower in self._followers:
            follower.add_events(events)
