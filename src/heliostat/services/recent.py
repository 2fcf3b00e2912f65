"""What was just read, for the many pages that refresh by themselves after the same change."""

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")
_TRUSTED_SECONDS = 2.0
_MOST = 500


class Recent:
    """Holds what was read since the last change that pages were told of; never what began to be read before it.

    Whoever is told of a change afterwards therefore never sees less than what they were told of.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._generation = 0
        self._kept: dict[Hashable, tuple[float, Any]] = {}

    def get(self, key: Hashable, load: Callable[[], T]) -> T:
        began = self._clock()
        with self._lock:
            generation = self._generation
            kept = self._kept.get(key)
        if kept is not None and began - kept[0] < _TRUSTED_SECONDS:
            found: T = kept[1]
            return found
        value = load()
        with self._lock:
            if generation == self._generation:
                if len(self._kept) >= _MOST:
                    self._kept.clear()
                self._kept[key] = (began, value)
        return value

    def forget(self) -> None:
        """Something changed, and those who show it are about to be told."""
        with self._lock:
            self._generation += 1
            self._kept.clear()
