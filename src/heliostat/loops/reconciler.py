"""Keeps services as they should be, and warns and ends sessions that nobody uses: a thread for each."""

from functools import partial

from heliostat.controller.background_loop import BackgroundLoop
from heliostat.models import JobId
from heliostat.services.context import Context
from heliostat.services.sessions.idle_culler import check_running_sessions, poll_interval_seconds
from heliostat.services.web_services.health import HealthProber
from heliostat.services.web_services.reconcile import reconcile_services
from heliostat.store.database import StoreChanges

_RETRY_SECONDS = 1.0


class ServiceReconciler:
    """Wakes when a service changes, a replica moves, or a look is due."""

    def __init__(self, context: Context) -> None:
        self._context, self._looks = context, HealthProber()
        self._watched: frozenset[JobId] = frozenset()
        self._loop = BackgroundLoop("reconciler", self._look, _RETRY_SECONDS, failure="services_not_tended")
        self._looks.wake = self._loop.wake
        context.store.on_commit(self._on_commit)

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        self._loop.close()
        self._looks.close()

    def _on_commit(self, changes: StoreChanges) -> None:
        if changes.services_changed or any(job_id in self._watched for job_id, _ in changes.changed_jobs):
            self._loop.wake()

    def _look(self) -> float:
        tended = reconcile_services(self._context, self._looks)
        self._watched = tended.replica_job_ids
        return tended.next_reconcile_seconds


class SessionMonitor:
    def __init__(self, context: Context) -> None:
        look = partial(check_running_sessions, context)
        self._loop = BackgroundLoop(
            "sessions", look, poll_interval_seconds(context), failure="sessions_not_watched"
        )
        self.start, self.close = self._loop.start_after_interval, self._loop.close
