"""One timer for all schedules: sleeps until the next is due, wakes when a schedule changes or a job ends."""

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

_STEP_SECONDS = 1.0  # by which the wall clock must part from the steady one to have been set


@dataclass(frozen=True, slots=True)
class ScheduleLoopTiming:
    max_sleep_seconds: float = 1.0  # a clock that is set is noticed within this
    retry_seconds: float = 1.0
    batch_seconds: float = 0.2  # in which other jobs may end: one look for all


_TIMING = ScheduleLoopTiming()


ReconcileSchedules = Callable[[Context, ReconcileTrigger], datetime | None]


class ScheduleLoop:
    def __init__(
        self,
        context: Context,
        timing: ScheduleLoopTiming = _TIMING,
        tend: ReconcileSchedules = reconcile_schedules,
    ) -> None:
        self._context, self._tend, self._timing = context, tend, timing
        self._next_at: datetime | None = None
        self._is_unsure = True  # an earlier server, or a look that failed, may have left anything
        self._lock = threading.Lock()  # guards what follows
        self._ended: set[JobId] = set()
        self._gathered_at = 0.0  # when those are handled
        self._changed = False
        self._ahead = self._clock_ahead()
        self._loop = BackgroundLoop("timekeeper", self._look, timing.retry_seconds, failure="schedules_not_tended")
        self.start, self.close = self._loop.start, self._loop.close
        context.store.on_commit(self._on_commit)

    def _on_commit(self, changes: StoreChanges) -> None:
        ended = [job_id for job_id, values in changes.changed_jobs if values.get("state") in TERMINAL_STATES]
        if not (ended or changes.schedules_changed):
            return
        with self._lock:
            is_first = bool(ended) and not self._ended
            if is_first:
                self._gathered_at = time.monotonic() + self._timing.batch_seconds
            self._ended.update(ended)
            self._changed = self._changed or changes.schedules_changed
        if changes.schedules_changed or is_first:
            self._loop.wake()

    def _look(self) -> float:
        """What was fired in the last look changed schedules too: that is one look more, which finds nothing."""
        went_back = self._clock_went_back()
        with self._lock:
            left = 0.0 if self._changed or went_back or self._is_unsure else self._seconds_left()
            if left > 0:
                return left
            ended, self._ended, self._changed = self._ended, set(), False
        trigger = (
            ReconcileTrigger(None, was_clock_set_back=True)
            if self._is_unsure
            else ReconcileTrigger(ended, went_back)
        )
        self._is_unsure = True
        self._next_at = self._tend(self._context, trigger)
        self._is_unsure = False
        with self._lock:
            return max(0.0, self._seconds_left())

    def _seconds_left(self) -> float:
        longest = self._timing.max_sleep_seconds
        to_next = longest if self._next_at is None else (self._next_at - self._context.now()).total_seconds()
        to_gather = self._gathered_at - time.monotonic() if self._ended else longest
        return min(to_next, to_gather, longest)

    def _clock_went_back(self) -> bool:
        """Since it was last asked; a step forward needs nothing but a look, which follows anyway."""
        before, self._ahead = self._ahead, self._clock_ahead()
        if abs(self._ahead - before) > _STEP_SECONDS:
            log.warning("clock_set", seconds=round(self._ahead - before, 3))
        return self._ahead < before - _STEP_SECONDS

    def _clock_ahead(self) -> float:
        return self._context.now().timestamp() - time.monotonic()
