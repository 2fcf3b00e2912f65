"""A few slots for expensive work, given to the waiting clients in turn."""

import threading
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from heliostat.errors import TooManyRequests


class FairSlots:
    """Thread-safe. A client has one slot at a time, so that another one waits at most for one turn of each."""

    def __init__(self, slots: int, wait_seconds: float, *, max_waiting: int = 30, max_own: int = 10) -> None:
        """At most `max_waiting` threads wait, `max_own` of them for the same client."""
        self._slots, self._wait_seconds = slots, wait_seconds
        self._max_waiting, self._max_own = max_waiting, max_own
        self._changed = threading.Condition()
        self._running: set[Hashable] = set()
        self._waiting: OrderedDict[Hashable, deque[object]] = OrderedDict()  # the client whose turn is next, first

    @contextmanager
    def slot(self, client: Hashable) -> Iterator[None]:
        """Raises TooManyRequests if too many are waiting, or after `wait_seconds`."""
        with self._changed:
            self._enter(client)
        try:
            yield
        finally:
            with self._changed:
                self._running.discard(client)
                self._changed.notify_all()

    def _enter(self, client: Hashable) -> None:
        own, ticket = self._waiting.get(client, ()), object()
        if len(own) >= self._max_own or sum(map(len, self._waiting.values())) >= self._max_waiting:
            raise _too_many()
        self._waiting.setdefault(client, deque()).append(ticket)
        has_slot = self._changed.wait_for(lambda: self._is_next(client, ticket), self._wait_seconds)
        queue = self._waiting[client]
        queue.remove(ticket)
        self._waiting.move_to_end(client)
        if not queue:
            del self._waiting[client]
        if not has_slot:
            raise _too_many()
        self._running.add(client)
        self._changed.notify_all()  # there may be another free slot

    def _is_next(self, client: Hashable, ticket: object) -> bool:
        if len(self._running) >= self._slots:
            return False
        first = next((one for one in self._waiting if one not in self._running), None)
        return first == client and self._waiting[client][0] is ticket


def _too_many() -> TooManyRequests:
    return TooManyRequests("Too many concurrent logins.", "Try again in a few seconds.")
