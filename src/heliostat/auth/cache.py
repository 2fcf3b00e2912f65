"""A short-lived cache for authentication data."""

import threading
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_MAX_AGE = timedelta(seconds=30)  # limits the delay of changes by another process or in passwd


class Cache(Generic[K, V]):
    """A small cache. A value that was loaded before `clear` is never stored after it."""

    def __init__(self, now: Callable[[], datetime], size: int = 4096) -> None:
        self._now = now
        self._size = size
        self._lock = threading.Lock()
        self._generation = 0
        self._entries: dict[K, tuple[datetime, V]] = {}

    def get(self, key: K, load: Callable[[], V]) -> V:
        """The cached or loaded value. Exceptions of `load` are not cached."""
        now = self._now()
        with self._lock:
            generation = self._generation
            entry = self._entries.get(key)
        if entry is not None and timedelta() <= now - entry[0] < _MAX_AGE:
            return entry[1]
        value = load()
        with self._lock:
            if generation == self._generation:
                if len(self._entries) >= self._size:
                    self._entries.clear()
                self._entries[key] = (now, value)
        return value

    def has(self, key: K) -> bool:
        """Whether `get` would not call `load` now."""
        entry = self._entries.get(key)
        return entry is not None and timedelta() <= self._now() - entry[0] < _MAX_AGE

    def clear(self) -> None:
        with self._lock:
            self._generation += 1
            self._entries.clear()
