"""Background loops that reconcile services and end idle sessions."""

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
    """Runs when a service or the job of a replica changes, or a health check is due."""

    def __init__(self, context: Context) -> None:
        self._context, self._prober = context, HealthProber()
        self._replica_job_ids: frozenset[JobId] = frozenset()
        self._loop = BackgroundLoop(
            "reconciler", self._run_once, _RETRY_SECONDS, failure="services_not_reconciled"
        )
        self._prober.wake = self._loop.wake
        context.store.on_commit(self._on_commit)

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        self._loop.close()
        self._prober.close()

    def _on_commit(self, changes: StoreChanges) -> None:
        if changes.services_changed or any(job_id in self._replica_job_ids for job_id, _ in changes.changed_jobs):
            self._loop.wake()

    def _run_once(self) -> float:
        result = reconcile_services(self._context, self._prober)
        self._replica_job_ids = result.replica_job_ids
        return result.next_reconcile_seconds


class SessionMonitor:
    def __init__(self, context: Context) -> None:
        run_once = partial(check_running_sessions, context)
        self._loop = BackgroundLoop(
            "sessions", run_once, poll_interval_seconds(context), failure="sessions_not_checked"
        )
        self.start, self.close = self._loop.start_after_interval, self._loop.close
