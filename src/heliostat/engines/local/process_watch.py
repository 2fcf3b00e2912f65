"""Process watch: waits for the ends of many processes and for timers in one thread, without polling."""

import contextlib
import heapq
import itertools
import os
import select
import threading
import time
from collections.abc import Callable

from heliostat.server_log import get_logger

log = get_logger()
Callback = Callable[[], object]


class ProcessWatch:
    """Runs a callback in its own thread when a process ends or a timer expires. Callbacks must be quick."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._actions: dict[int, Callback] = {}
        self._timers: list[tuple[float, int, Callback]] = []
        self._counter = itertools.count()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def call_on_exit(self, pidfd: int, action: Callback) -> None:
        """The watch owns the descriptor from now on. Raises OSError, and closes it, when it cannot be watched."""
        with self._lock:
            self._actions[pidfd] = action
        try:
            self._epoll.register(pidfd, select.EPOLLIN | select.EPOLLONESHOT)
        except OSError:
            with self._lock:
                del self._actions[pidfd]
            os.close(pidfd)
            raise

    def call_after(self, seconds: float, action: Callback) -> None:
        with self._lock:
            heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._counter), action))
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        self._epoll.close()
        for descriptor in (self._wake, *self._actions):
            os.close(descriptor)

    def _run(self) -> None:
        while not self._closed:
            for descriptor, _ in self._epoll.poll(self._seconds_to_next_timer()):
                if descriptor == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(self._wake)
                else:
                    self._ended(descriptor)
            for action in self._due():
                _call(action)

    def _ended(self, pidfd: int) -> None:
        with self._lock:
            action = self._actions.pop(pidfd)
        self._epoll.unregister(pidfd)
        with contextlib.suppress(ChildProcessError):  # not our child: the server was restarted
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
        os.close(pidfd)
        _call(action)

    def _seconds_to_next_timer(self) -> float:
        with self._lock:
            return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else -1

    def _due(self) -> list[Callback]:
        due: list[Callback] = []
        with self._lock:
            while self._timers and self._timers[0][0] <= time.monotonic():
                due.append(heapq.heappop(self._timers)[2])
        return due


def _call(action: Callback) -> None:
    try:
        action()
    except Exception:
        log.exception("watch_action_failed")
