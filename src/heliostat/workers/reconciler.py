"""One thread that keeps services as they should be: wakes when one changes, a replica moves, or a look is due."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from heliostat.errors import HeliostatError
from heliostat.models import JobId
from heliostat.store.database import Changes, Store

log = structlog.get_logger()
_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Tended:
    """What a round has found."""

    watched: frozenset[JobId] = frozenset()  # the jobs of replicas: when one moves, there is something to do
    seconds: float = 60.0  # until there is something to do anyway


class Reconciler:
    def __init__(self, store: Store, tend: Callable[[], Tended]) -> None:
        self._tend = tend
        self._wake = threading.Condition()
        self._watched: frozenset[JobId] = frozenset()
        self._has_news = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)
        store.on_commit(self._on_commit)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    def wake(self) -> None:
        """There is something to look at."""
        with self._wake:
            self._has_news = True
            self._wake.notify()

    def _on_commit(self, changes: Changes) -> None:
        if changes.services or any(job_id in self._watched for job_id, _ in changes.moved):
            self.wake()

    def _run(self) -> None:
        while not self._stopping:
            try:
                tended = self._tend()
            except Exception as error:  # noqa: BLE001 - this thread must not die
                _tell(error)
                tended = Tended(self._watched, _RETRY_SECONDS)
            self._watched = tended.watched
            with self._wake:
                if not (self._has_news or self._stopping):
                    self._wake.wait(tended.seconds)
                self._has_news = False


def _tell(error: Exception) -> None:
    with contextlib.suppress(Exception):
        if isinstance(error, HeliostatError):
            log.error("services_not_tended", error=error.message)
        else:
            log.error("services_not_tended", exc_info=error)
