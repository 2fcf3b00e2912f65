"""One thread that keeps services as they should be: wakes when one changes, a replica moves, or a look is due."""

from collections.abc import Callable
from dataclasses import dataclass

from heliostat.models import JobId
from heliostat.store.database import Changes, Store
from heliostat.workers.loop import Loop

_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Tended:
    """What a round has found."""

    watched: frozenset[JobId] = frozenset()  # the jobs of replicas: when one moves, there is something to do
    seconds: float = 60.0  # until there is something to do anyway


class Reconciler:
    def __init__(self, store: Store, tend: Callable[[], Tended]) -> None:
        self._tend = tend
        self._watched: frozenset[JobId] = frozenset()
        self._loop = Loop("reconciler", self._look, _RETRY_SECONDS, failure="services_not_tended")
        self.start, self.wake, self.close = self._loop.start, self._loop.wake, self._loop.close
        store.on_commit(self._on_commit)

    def _on_commit(self, changes: Changes) -> None:
        if changes.services or any(job_id in self._watched for job_id, _ in changes.moved):
            self.wake()

    def _look(self) -> float:
        tended = self._tend()
        self._watched = tended.watched
        return tended.seconds
