"""What was read from the database a moment ago."""

import threading
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_TRUSTED_FOR = timedelta(seconds=30)  # bounds what a change by another process, or in passwd, can leave stale


class Cache(Generic[K, V]):
    """A small cache that never keeps what was read before it was cleared."""

    def __init__(self, now: Callable[[], datetime], size: int = 4096) -> None:
        self._now = now
        self._size = size
        self._lock = threading.Lock()
        self._generation = 0
        self._kept: dict[K, tuple[datetime, V]] = {}

    def get(self, key: K, load: Callable[[], V]) -> V:
        """What is kept, else what is loaded; what `load` raises is not kept."""
        now = self._now()
        with self._lock:
            generation = self._generation
            kept = self._kept.get(key)
        if kept is not None and timedelta() <= now - kept[0] < _TRUSTED_FOR:
            return kept[1]
        value = load()
        with self._lock:
            if generation == self._generation:
                if len(self._kept) >= self._size:
                    self._kept.clear()
                self._kept[key] = (now, value)
        return value

    def has(self, key: K) -> bool:
        """Whether `get` would find it here now."""
        kept = self._kept.get(key)
        return kept is not None and timedelta() <= self._now() - kept[0] < _TRUSTED_FOR

    def clear(self) -> None:
        with self._lock:
            self._generation += 1
            self._kept.clear()
