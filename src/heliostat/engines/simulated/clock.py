"""Clocks of the simulated engine: real time, or advanced by hand in tests.

A clock returns the time and makes scheduled calls, one after the other, in order of time.
"""

import heapq
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from heliostat.server_log import get_logger

log = get_logger(__name__)

MAX_WAIT_SECONDS = 3600.0


@dataclass(order=True, slots=True)
class ScheduledCall:
    """A call at a given time. Cancelling it after the call has no effect."""

    at: datetime
    number: int
    call: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class Clock(Protocol):
    def now(self) -> datetime:
        """Aware UTC."""

    def call_at(self, at: datetime, call: Callable[[], None]) -> ScheduledCall:
        """Call once, at that time or as soon as possible after it; never from within this method."""


class ManualClock:
    """Changes only when it is advanced."""

    def __init__(self, start: datetime = datetime(2026, 1, 5, 9, tzinfo=UTC)) -> None:
        self._now = start
        self._calls = _CallHeap()
        self._advancing = False

    def now(self) -> datetime:
        return self._now

    def call_at(self, at: datetime, call: Callable[[], None]) -> ScheduledCall:
        return self._calls.add(at, call)

    def advance(self, seconds: float = 0.0) -> None:
        """Make all calls that are due until then, each at its own time; also calls scheduled by these calls."""
        if self._advancing:
            raise RuntimeError("A scheduled call cannot advance the clock.")
        end = self._now + timedelta(seconds=seconds)
        self._advancing = True
        try:
            while (scheduled := self._calls.pop_due(end)) is not None:
                self._now = max(self._now, scheduled.at)
                scheduled.call()
            self._now = end
        finally:
            self._advancing = False


class RealClock:
    """The time of this machine. A thread of its own makes the calls."""

    def __init__(self) -> None:
        self._calls = _CallHeap()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def now(self) -> datetime:
        return datetime.now(UTC)

    def call_at(self, at: datetime, call: Callable[[], None]) -> ScheduledCall:
        scheduled = self._calls.add(at, call)
        with self._changed:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="simulated-clock", daemon=True)
                self._thread.start()
            self._changed.notify()
        return scheduled

    def close(self) -> None:
        """Make no more calls."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)

    def _run(self) -> None:
        while (scheduled := self._wait_for_due()) is not None:
            try:
                scheduled.call()
            except Exception:
                log.exception("simulated_clock_call_failed")

    def _wait_for_due(self) -> ScheduledCall | None:
        with self._changed:
            while not self._closed:
                scheduled = self._calls.pop_due(self.now())
                if scheduled is not None:
                    return scheduled
                self._changed.wait(self._seconds_to_next())
        return None

    def _seconds_to_next(self) -> float:
        next_at = self._calls.next_at()
        if next_at is None:
            return MAX_WAIT_SECONDS
        return min(max((next_at - self.now()).total_seconds(), 0.0), MAX_WAIT_SECONDS)


class _CallHeap:
    """A heap of scheduled calls; cancelled ones are skipped when they are due."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heap: list[ScheduledCall] = []
        self._numbers = itertools.count()

    def add(self, at: datetime, call: Callable[[], None]) -> ScheduledCall:
        with self._lock:
            scheduled = ScheduledCall(at, next(self._numbers), call)
            heapq.heappush(self._heap, scheduled)
            return scheduled

    def pop_due(self, now: datetime) -> ScheduledCall | None:
        with self._lock:
            while self._heap and self._heap[0].at <= now:
                scheduled = heapq.heappop(self._heap)
                if not scheduled.cancelled:
                    return scheduled
            return None

    def next_at(self) -> datetime | None:
        with self._lock:
            return self._heap[0].at if self._heap else None
