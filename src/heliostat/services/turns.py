"""For what takes seconds of a thread and of a processor: nobody twice at once, and never too many."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from heliostat.errors import TooManyRequests

_MOST = 4


class Turns:
    """Thread-safe. Whoever comes too early is told so at once: to wait would take a thread as well."""

    def __init__(self, what: str, most: int = _MOST) -> None:
        self._what, self._most = what, most
        self._lock = threading.Lock()
        self._having: set[str] = set()

    @contextmanager
    def of(self, user: str) -> Iterator[None]:
        """Raises TooManyRequests."""
        with self._lock:
            if user in self._having:
                raise TooManyRequests(f"A {self._what} of yours is under way.", "Wait for its answer.")
            if len(self._having) >= self._most:
                raise TooManyRequests("Many are asking at this moment.", "Ask again in a few seconds.")
            self._having.add(user)
        try:
            yield
        finally:
            with self._lock:
                self._having.discard(user)
