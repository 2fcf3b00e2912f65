"""One timer for all schedules: sleeps until the next is due, wakes when a schedule changes or a job ends."""

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from heliostat.errors import HeliostatError
from heliostat.models import TERMINAL, JobId
from heliostat.server_log import get_logger
from heliostat.services.context import Context
from heliostat.services.schedules.firing import Occasion, tend
from heliostat.store.database import Changes

log = get_logger()

_STEP_SECONDS = 1.0  # by which the wall clock must part from the steady one to have been set


@dataclass(frozen=True, slots=True)
class TimekeeperTiming:
    longest_sleep_seconds: float = 1.0  # a clock that is set is noticed within this
    retry_seconds: float = 1.0
    gather_seconds: float = 0.2  # in which other jobs may end: one look for all


_TIMING = TimekeeperTiming()


Tend = Callable[[Context, Occasion], datetime | None]


class Timekeeper:
    def __init__(self, context: Context, timing: TimekeeperTiming = _TIMING, tend: Tend = tend) -> None:
        self._context, self._tend, self._timing = context, tend, timing
        self._wake = threading.Condition()
        self._ended: set[JobId] = set()
        self._changed = False
        self._stopping = False
        self._ahead = self._clock_ahead()
        self._thread = threading.Thread(target=self._run, name="timekeeper", daemon=True)
        context.store.on_commit(self._on_commit)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _on_commit(self, changes: Changes) -> None:
        ended = [job_id for job_id, values in changes.moved if values.get("state") in TERMINAL]
        if not (ended or changes.schedules):
            return
        with self._wake:
            if changes.schedules or not self._ended:
                self._wake.notify()
            self._ended.update(ended)
            self._changed = self._changed or changes.schedules

    def _run(self) -> None:
        occasion = Occasion(None, clock_went_back=True)  # an earlier server may have left anything
        while not self._stopping:
            try:
                next_at = self._tend(self._context, occasion)
            except Exception as error:  # noqa: BLE001 - this thread must not die
                _tell(error)
                self._pause()
                occasion = Occasion(None, clock_went_back=True)
                continue
            occasion = self._sleep(next_at)

    def _sleep(self, next_at: datetime | None) -> Occasion:
        """Until there is something to do. What was fired in the last look changed schedules too: that is one look
        more, which finds nothing."""
        with self._wake:
            gathered_at = None
            while not (self._stopping or self._changed):
                if went_back := self._clock_went_back():
                    return Occasion(clock_went_back=went_back)
                if self._ended and gathered_at is None:
                    gathered_at = time.monotonic() + self._timing.gather_seconds
                left = self._seconds_left(next_at, gathered_at)
                if left <= 0:
                    break
                self._wake.wait(left)
            ended, self._ended, self._changed = self._ended, set(), False
            return Occasion(ended, self._clock_went_back())

    def _seconds_left(self, next_at: datetime | None, gathered_at: float | None) -> float:
        longest = self._timing.longest_sleep_seconds
        to_next = longest if next_at is None else (next_at - self._context.now()).total_seconds()
        to_gather = longest if gathered_at is None else gathered_at - time.monotonic()
        return min(to_next, to_gather, longest)

    def _clock_went_back(self) -> bool:
        """Since it was last asked; a step forward needs nothing but a look, which follows anyway."""
        before, self._ahead = self._ahead, self._clock_ahead()
        if abs(self._ahead - before) > _STEP_SECONDS:
            log.warning("clock_set", seconds=round(self._ahead - before, 3))
        return self._ahead < before - _STEP_SECONDS

    def _clock_ahead(self) -> float:
        return self._context.now().timestamp() - time.monotonic()

    def _pause(self) -> None:
        with self._wake:
            if not self._stopping:
                self._wake.wait(self._timing.retry_seconds)


def _tell(error: Exception) -> None:
    with contextlib.suppress(Exception):
        if isinstance(error, HeliostatError):
            log.error("schedules_not_tended", error=error.message)
        else:
            log.error("schedules_not_tended", exc_info=error)
