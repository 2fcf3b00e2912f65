"""What the server keeps for monitoring."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from heliostat.metrics import FAST_BUCKETS, Histogram

T = TypeVar("T")


class TimedCache(Generic[T]):
    """One value that is loaded again after some seconds. Callers that arrive meanwhile wait for it."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._lock = threading.Lock()
        self._entry: tuple[float, T] | None = None

    def get_or_load(self, load: Callable[[], T]) -> T:
        with self._lock:
            if self._entry is None or self._clock() - self._entry[0] >= self._seconds:
                self._entry = (self._clock(), load())
            return self._entry[1]


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
