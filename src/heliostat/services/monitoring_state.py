"""What the server keeps for monitoring."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from heliostat.metrics import FAST_BUCKETS, Histogram

T = TypeVar("T")


class TimedCache(Generic[T]):
    """One value that is loaded again after some seconds, by one caller; meanwhile others get the old value."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._lock = threading.Lock()
        self._entry: tuple[float, T] | None = None

    def get_or_load(self, load: Callable[[], T]) -> T:
        known = self._entry
        if known is not None and (self._is_fresh(known) or not self._lock.acquire(blocking=False)):
            return known[1]
        if known is None:
            self._lock.acquire()
        try:
            if self._entry is None or not self._is_fresh(self._entry):
                self._entry = (self._clock(), load())
            return self._entry[1]
        finally:
            self._lock.release()

    def _is_fresh(self, entry: tuple[float, T]) -> bool:
        return self._clock() - entry[0] < self._seconds


@dataclass(frozen=True, slots=True)
class AreaSpace:
    """Space of the file system of a folder."""

    free_bytes: int  # for the users of the folder
    size_bytes: int


@dataclass(slots=True)
class MonitoringState:
    request_seconds: Histogram = field(default_factory=lambda: Histogram(FAST_BUCKETS))
    areas: Mapping[str, AreaSpace] = field(default_factory=dict)  # by name, as of the last reading
    # Without a login anybody can ask for these: so they are computed once in a while, however many ask.
    metrics_page: TimedCache[bytes] = field(default_factory=lambda: TimedCache(1.0))
    write_problem: TimedCache[str | None] = field(default_factory=lambda: TimedCache(5.0))
