"""Timer of all schedules: sleeps until the next one is due; wakes when a schedule changes or a job ends."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from heliostat.controller.background_loop import BackgroundLoop
from heliostat.models import TERMINAL_STATES, JobId
from heliostat.server_log import get_logger
from heliostat.services.context import Context
from heliostat.services.schedules.firing import ReconcileTrigger, reconcile_schedules
from heliostat.store.database import StoreChanges

log = get_logger()

_CLOCK_STEP_SECONDS = 1.0  # minimum difference to the monotonic clock that counts as a clock change


@dataclass(frozen=True, slots=True)
class ScheduleLoopTiming:
    max_sleep_seconds: float = 1.0  # a clock change is noticed within this time
    retry_seconds: float = 1.0
    batch_seconds: float = 0.2  # jobs that end within this time are handled together


_TIMING = ScheduleLoopTiming()


ReconcileSchedules = Callable[[Context, ReconcileTrigger], datetime | None]


class ScheduleLoop:
    def __init__(
        self,
        context: Context,
        timing: ScheduleLoopTiming = _TIMING,
        reconcile: ReconcileSchedules = reconcile_schedules,
    ) -> None:
        self._context, self._reconcile, self._timing = context, reconcile, timing
        self._next_at: datetime | None = None
        self._needs_full_check = True  # after the start or a failure: all schedules must be checked
        self._lock = threading.Lock()  # guards the next three
        self._ended: set[JobId] = set()
        self._batch_ends_at = 0.0  # when the ended jobs are handled
        self._changed = False
        self._clock_offset = self._read_clock_offset()
        self._loop = BackgroundLoop(
            "schedules", self._run_once, timing.retry_seconds, failure="schedules_not_reconciled"
        )
        self.start, self.close = self._loop.start, self._loop.close
        context.store.on_commit(self._on_commit)

    def _on_commit(self, changes: StoreChanges) -> None:
        ended = [job_id for job_id, values in changes.changed_jobs if values.get("state") in TERMINAL_STATES]
        if not (ended or changes.schedules_changed):
            return
        with self._lock:
            is_first = bool(ended) and not self._ended
            if is_first:
                self._batch_ends_at = time.monotonic() + self._timing.batch_seconds
            self._ended.update(ended)
            self._changed = self._changed or changes.schedules_changed
        if changes.schedules_changed or is_first:
            self._loop.wake()

    def _run_once(self) -> float:
        """Firing changes schedules, so each firing is followed by one more call that finds nothing to do."""
        went_back = self._clock_went_back()
        with self._lock:
            left = 0.0 if self._changed or went_back or self._needs_full_check else self._seconds_left()
            if left > 0:
                return left
            ended, self._ended, self._changed = self._ended, set(), False
        trigger = (
            ReconcileTrigger(None, was_clock_set_back=True)
            if self._needs_full_check
            else ReconcileTrigger(ended, went_back)
        )
        self._needs_full_check = True
        self._next_at = self._reconcile(self._context, trigger)
        self._needs_full_check = False
        with self._lock:
            return max(0.0, self._seconds_left())

    def _seconds_left(self) -> float:
        longest = self._timing.max_sleep_seconds
        to_next = longest if self._next_at is None else (self._next_at - self._context.now()).total_seconds()
        to_batch_end = self._batch_ends_at - time.monotonic() if self._ended else longest
        return min(to_next, to_batch_end, longest)

    def _clock_went_back(self) -> bool:
        """Since the last call. A step forward needs no special handling."""
        before, self._clock_offset = self._clock_offset, self._read_clock_offset()
        if abs(self._clock_offset - before) > _CLOCK_STEP_SECONDS:
            log.warning("clock_set", seconds=round(self._clock_offset - before, 3))
        return self._clock_offset < before - _CLOCK_STEP_SECONDS

    def _read_clock_offset(self) -> float:
        return self._context.now().timestamp() - time.monotonic()
