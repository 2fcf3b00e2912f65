"""How many requests the proxy has open with each replica, and whether what it knows of them is still true."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator

from heliostat.models import JobId
from heliostat.store.database import Changes


class Traffic:
    """Thread-safe. Counted by the proxy, read by whoever drains replicas."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: Counter[JobId] = Counter()
        self.version = 0  # another one after every change of services

    def on_commit(self, changes: Changes) -> None:
        if changes.services:
            self.version += 1

    def open_with(self, job_id: JobId) -> int:
        return self._open.get(job_id, 0)

    def busy(self) -> frozenset[JobId]:
        with self._lock:
            return frozenset(self._open)

    @contextlib.contextmanager
    def counted(self, job_id: JobId) -> Iterator[None]:
        """A request is open there meanwhile."""
        with self._lock:
            self._open[job_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._open[job_id] -= 1
                if not self._open[job_id]:
                    del self._open[job_id]
