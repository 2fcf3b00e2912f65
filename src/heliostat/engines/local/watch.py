"""Waits for many processes at once, in one thread, without polling."""

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
Action = Callable[[], object]
NO_HURRY = object()
"""What a reader's action returns when more will be there soon and nobody waits for it."""
_REST_SECONDS = 0.005  # for which others may write as well


class Watch:
    """Calls back, in its own thread, when a process ends, somebody writes or a time comes. All must be quick."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._actions: dict[int, Action] = {}
        self._readers: dict[int, Action] = {}
        self._timers: list[tuple[float, int, Action]] = []
        self._counter = itertools.count()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def on_exit(self, pidfd: int, action: Action) -> None:
        """The watch owns the descriptor from now on."""
        with self._lock:
            self._actions[pidfd] = action
        self._epoll.register(pidfd, select.EPOLLIN | select.EPOLLONESHOT)

    def on_readable(self, descriptor: int, action: Action) -> None:
        """Whenever there is something to read, until it is dropped. It stays the caller's."""
        self._readers[descriptor] = action
        self._epoll.register(descriptor, select.EPOLLIN)

    def drop(self, descriptor: int) -> None:
        if self._readers.pop(descriptor, None) and not self._closed:
            self._epoll.unregister(descriptor)

    def call_after(self, seconds: float, action: Action) -> None:
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
            said = [self._answer(descriptor) for descriptor, _ in self._epoll.poll(self._seconds_to_next_timer())]
            for action in self._due():
                _call(action)
            if said and all(one is NO_HURRY for one in said):
                time.sleep(_REST_SECONDS)

    def _answer(self, descriptor: int) -> object:
        if reader := self._readers.get(descriptor):
            return _call(reader)
        if descriptor == self._wake:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
        else:
            self._ended(descriptor)
        return None

    def _ended(self, pidfd: int) -> None:
        with self._lock:
            action = self._actions.pop(pidfd, None)
        if action is None:
            return  # a reader that was dropped a moment ago
        self._epoll.unregister(pidfd)
        with contextlib.suppress(ChildProcessError):  # not our child: the server was restarted since
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
        os.close(pidfd)
        _call(action)

    def _seconds_to_next_timer(self) -> float:
        with self._lock:
            return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else -1

    def _due(self) -> list[Action]:
        due: list[Action] = []
        with self._lock:
            while self._timers and self._timers[0][0] <= time.monotonic():
                due.append(heapq.heappop(self._timers)[2])
        return due


def _call(action: Action) -> object:
    try:
        return action()
    except Exception:
        log.exception("watch_action_failed")
        return None
