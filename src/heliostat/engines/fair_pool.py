"""Fair pool: threads for slow work of users, who take turns."""

import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from heliostat.server_log import get_logger

log = get_logger()


class FairPool:
    """One user's work never uses all threads. The user of whose work least is running is next; of several such
    users the one who has waited longest."""

    def __init__(self, name: str, threads: int = 4, threads_per_user: int = 2) -> None:
        self._threads, self._threads_per_user = threads, threads_per_user
        self._waiting: dict[str, deque[Callable[[], None]]] = {}  # the next user first
        self._running = Counter[str]()
        self._lock = threading.Lock()
        self._closed = False
        self._executor = ThreadPoolExecutor(threads, name)

    def submit(self, user: str, action: Callable[[], None]) -> None:
        with self._lock:
            self._waiting.setdefault(user, deque()).append(action)
            self._start_waiting()

    def close(self) -> None:
        """Waits for what runs; the rest is discarded."""
        with self._lock:
            self._closed = True
        self._executor.shutdown(cancel_futures=True)

    def _start_waiting(self) -> None:
        while (
            not self._closed and self._running.total() < self._threads and (user := self._next_user()) is not None
        ):
            actions = self._waiting.pop(user)
            self._executor.submit(self._run, user, actions.popleft())
            self._running[user] += 1
            if actions:
                self._waiting[user] = actions

    def _next_user(self) -> str | None:
        may_start = [user for user in self._waiting if self._running[user] < self._threads_per_user]
        return min(may_start, key=lambda user: self._running[user], default=None)

    def _run(self, user: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:
            log.exception("pool_action_failed", user=user)
        with self._lock:
            self._running -= Counter([user])
            self._start_waiting()
