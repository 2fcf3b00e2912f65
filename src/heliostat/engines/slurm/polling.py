"""Timing of the Slurm engine: poll timer, backoff of submissions, values refreshed in the background."""

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from heliostat.engines.slurm.client import SlurmRefused
from heliostat.engines.slurm.journal import read_receipt
from heliostat.engines.slurm.tracked_jobs import TrackedJob
from heliostat.errors import HeliostatError
from heliostat.models import AttemptId
from heliostat.server_log import get_logger

MAX_BACKOFF_SECONDS = 60.0
RECEIPT_CHECK_SECONDS = 0.1  # between two checks of the receipts
_MAX_WATCHED_RUNNING = 256  # jobs
_MAX_WATCHED_WAITING = 32
_EARLY_POLL_SHARE = 1 / 20  # maximum share of the time for polls because of receipts
_FINAL_POLL_SHARE = 1 / 5  # the same, while all watched receipts have their end
log = get_logger()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SlurmTiming:
    poll_seconds: float = 1.0  # between two polls of Heliostat's jobs
    foreign_poll_seconds: float = 5.0  # between two polls of foreign jobs
    max_backoff_seconds: float = MAX_BACKOFF_SECONDS  # until a failed submission is tried again


class SubmissionDelayed(Exception):
    """The attempt cannot be submitted now; the message says why."""


@dataclass(frozen=True, slots=True)
class BackoffDelay:
    reason: str
    failure_count: int
    until: float


class Backoff:
    """Exponential backoff of failed submissions, with the reason of each delay.

    Only one thread at a time may change the delay of an attempt; all may read. `clock` returns seconds.
    """

    def __init__(
        self,
        first_seconds: float,
        longest_seconds: float = MAX_BACKOFF_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first_seconds, self._longest_seconds, self._clock = first_seconds, longest_seconds, clock
        self._delays: dict[AttemptId, BackoffDelay] = {}

    def delay(self, attempt_ids: Iterable[AttemptId], reason: str) -> None:
        for attempt_id in attempt_ids:
            before = self._delays.get(attempt_id)
            tries = 1 if before is None else before.failure_count + 1
            seconds = min(self._longest_seconds, self._first_seconds * 2.0 ** min(tries - 1, 30))
            self._delays[attempt_id] = BackoffDelay(reason, tries, self._clock() + seconds)

    def is_due(self, attempt_id: AttemptId) -> bool:
        delay = self._delays.get(attempt_id)
        return delay is None or self._clock() >= delay.until

    def reason(self, attempt_id: AttemptId) -> str | None:
        """Why it is delayed; None: it is not."""
        delay = self._delays.get(attempt_id)
        return None if delay is None else delay.reason

    def forget(self, attempt_ids: Iterable[AttemptId]) -> None:
        for attempt_id in attempt_ids:
            self._delays.pop(attempt_id, None)

    def clear(self) -> None:
        """Makes all due, for example when Slurm responds again."""
        self._delays.clear()


class PollTimer:
    """Decides when to poll Slurm: every second, and earlier if a job's receipt has changed.

    A script records its start and end in its receipt (see `journal.py`). A network file system may show that late:
    the regular poll covers this case. Only for the polling thread. `clock` returns seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._next = self._began = self._ended_at = 0.0
        self._has_changes = self._is_early = False
        self._final_share = _FINAL_POLL_SHARE
        self._sizes: dict[str, int] = {}  # of watched receipts, by path
        self._open: set[str] = set()  # receipts without an end

    @property
    def seconds_until_poll(self) -> float:
        return max(0.0, self._next - self._clock())

    @property
    def seconds_until_check(self) -> float:
        """Until the next check of the receipts, or the next poll."""
        return min(self.seconds_until_poll, RECEIPT_CHECK_SECONDS) if self._sizes else self.seconds_until_poll

    def check_receipts(self) -> None:
        """Schedules an early poll if receipts have changed."""
        self._read_changes()
        if self._has_changes and self._clock() >= self._earliest:
            self._next, self._is_early = self._clock(), True

    def begin_poll(self, tracked: Collection[TrackedJob]) -> None:
        """Later changes of these jobs' receipts count as new."""
        self._began, before = self._clock(), self._sizes
        self._sizes = {job.receipt_path: before.get(job.receipt_path, 0) for job in _watched(tracked)}
        self._open = {path for path in self._sizes if path in self._open or path not in before}
        self._read_changes()
        self._has_changes = False

    def end_poll(self) -> None:
        """Schedules the next poll; soon after an early one, because a script records its end before Slurm does."""
        self._ended_at = self._clock()
        regular, all_ended = self._ended_at + self._seconds, self._sizes and not self._open
        self._next = min(self._earliest, regular) if self._is_early or all_ended else regular
        self._is_early = False
        self._final_share = max(_EARLY_POLL_SHARE, self._final_share / 2)  # less often while a job does not end

    def _read_changes(self) -> None:
        for path in [path for path, size in self._sizes.items() if _size(path) != size]:
            self._sizes[path] = _size(path)
            self._has_changes, self._final_share = True, _FINAL_POLL_SHARE
            if read_receipt(path).has_ended:
                self._open.discard(path)
            else:
                self._open.add(path)

    @property
    def _earliest(self) -> float:
        """Earliest time of a poll because of receipts."""
        share = _EARLY_POLL_SHARE if self._open else self._final_share
        return self._ended_at + (self._ended_at - self._began) / share


def _watched(tracked: Collection[TrackedJob]) -> Iterator[TrackedJob]:
    """The jobs whose receipts are likely to change next."""
    submitted = [job for job in tracked if job.slurm_job_id is not None]
    yield from islice((job for job in submitted if not job.is_waiting), _MAX_WATCHED_RUNNING)
    yield from islice((job for job in submitted if job.is_waiting), _MAX_WATCHED_WAITING)


def _size(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return -1


class RefreshedValue(Generic[T]):
    """A cached value that a background thread refreshes, so that callers do not wait. After a failure the previous
    value stays. Thread-safe."""

    def __init__(self, name: str, read: Callable[[], T], seconds: float) -> None:
        self.value: T | None = None
        self._name, self._read, self._seconds = name, read, seconds
        self._lock = threading.Lock()
        self._next = 0.0
        self._idle = threading.Event()  # no refresh is running
        self._idle.set()

    def refresh(self) -> T:
        """Reads the value now. Raises what `read` raises; then the previous value stays."""
        self.value = self._read()
        return self.value

    def try_refresh(self) -> None:
        """As `refresh`, but logs errors instead of raising them."""
        try:
            self.refresh()
        except (HeliostatError, SlurmRefused) as error:
            log.info(f"{self._name}_unknown", error=str(error))
        except Exception:
            log.exception(f"{self._name}_unknown")

    def refresh_if_stale(self) -> None:
        """Starts a refresh unless the value is recent or a refresh is running. Returns at once."""
        with self._lock:
            if time.monotonic() < self._next or not self._idle.is_set():
                return
            self._next = time.monotonic() + self._seconds
            self._idle.clear()
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def wait_for_refresh(self, seconds: float) -> None:
        """Until no refresh is running, but at most this long."""
        self._idle.wait(seconds)

    def _run(self) -> None:
        try:
            self.try_refresh()
        finally:
            self._idle.set()
