"""Keeps services as they should be, and warns and ends sessions that nobody uses: a thread for each."""

from functools import partial

from heliostat.controller.loop import Loop
from heliostat.models import JobId
from heliostat.services.context import Context
from heliostat.services.sessions.watch import pause_seconds, watch_sessions
from heliostat.services.web_services.health import Looks
from heliostat.services.web_services.tending import tend
from heliostat.store.database import Changes

_RETRY_SECONDS = 1.0


class Reconciler:
    """Wakes when a service changes, a replica moves, or a look is due."""

    def __init__(self, context: Context) -> None:
        self._context, self._looks = context, Looks()
        self._watched: frozenset[JobId] = frozenset()
        self._loop = Loop("reconciler", self._look, _RETRY_SECONDS, failure="services_not_tended")
        self._looks.wake = self._loop.wake
        context.store.on_commit(self._on_commit)

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        self._loop.close()
        self._looks.close()

    def _on_commit(self, changes: Changes) -> None:
        if changes.services or any(job_id in self._watched for job_id, _ in changes.moved):
            self._loop.wake()

    def _look(self) -> float:
        tended = tend(self._context, self._looks)
        self._watched = tended.watched
        return tended.seconds


class SessionWatch:
    def __init__(self, context: Context) -> None:
        look = partial(watch_sessions, context)
        self._loop = Loop("sessions", look, pause_seconds(context), failure="sessions_not_watched")
        self.start, self.close = self._loop.start_later, self._loop.close
