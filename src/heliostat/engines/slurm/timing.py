"""When Slurm is asked again, when a submission is tried again, and how old what was read may be."""

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from heliostat.engines.slurm.client import SlurmRefused
from heliostat.engines.slurm.journal import read_receipt
from heliostat.engines.slurm.tracked_job import TrackedJob
from heliostat.errors import HeliostatError
from heliostat.models import AttemptId
from heliostat.server_log import get_logger

MAX_BACKOFF_SECONDS = 60.0
RECEIPT_CHECK_SECONDS = 0.1  # between two glances at the receipts
_MOST_RUNNING = 256  # are watched
_MOST_WAITING = 32
_SHARE = 1 / 20  # of the time, at most, is spent on asking because of receipts
_LAST_SHARE = 1 / 5  # the same, while all that are watched have noted their end
log = get_logger()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SlurmTiming:
    poll_seconds: float = 1.0  # between two looks at our jobs
    foreign_poll_seconds: float = 5.0  # between two looks at the jobs of others
    max_backoff_seconds: float = MAX_BACKOFF_SECONDS  # until a submission that did not go through is tried again


class SubmissionDelayed(Exception):
    """It cannot be submitted for the time being; says why."""


@dataclass(frozen=True, slots=True)
class BackoffDelay:
    reason: str
    failure_count: int
    until: float


class Backoff:
    """Submissions that did not go through are tried again, ever more seldom; what keeps them is said meanwhile.

    One thread at a time may change what is said of one attempt; all may ask. `clock` counts seconds.
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
        """Why it was put off."""
        delay = self._delays.get(attempt_id)
        return None if delay is None else delay.reason

    def forget(self, attempt_ids: Iterable[AttemptId]) -> None:
        for attempt_id in attempt_ids:
            self._delays.pop(attempt_id, None)

    def clear(self) -> None:
        """What kept them is over: all are due."""
        self._delays.clear()


class PollTimer:
    """When Slurm is asked how our jobs are: every second, and sooner when one of them has noted something itself.

    A script notes in its receipt that it has begun or ended (see `journal.py`). A file system of several machines
    may show that late: then the next second tells. For the thread that asks. `clock` counts seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._next = self._began = self._ended_at = 0.0
        self._has_news = self._is_early = False
        self._last_share = _LAST_SHARE
        self._sizes: dict[str, int] = {}
        self._open: set[str] = set()  # of these, those that have not noted their end

    @property
    def seconds_until_poll(self) -> float:
        """Seconds until it is time to ask."""
        return max(0.0, self._next - self._clock())

    @property
    def seconds_until_check(self) -> float:
        """The same until it is time to glance at the receipts, or to ask."""
        return min(self.seconds_until_poll, RECEIPT_CHECK_SECONDS) if self._sizes else self.seconds_until_poll

    def check_receipts(self) -> None:
        """At the receipts: with news in them it is time, or will be soon."""
        self._read_news()
        if self._has_news and self._clock() >= self._earliest:
            self._next, self._is_early = self._clock(), True

    def begin_poll(self, tracked: Collection[TrackedJob]) -> None:
        """To ask. From here on, what they note is news."""
        self._began, before = self._clock(), self._sizes
        self._sizes = {one.receipt_path: before.get(one.receipt_path, 0) for one in _watched(tracked)}
        self._open = {path for path in self._sizes if path in self._open or path not in before}
        self._read_news()
        self._has_news = False

    def end_poll(self) -> None:
        """Slurm has answered. A script notes its end a moment before Slurm knows of it: so soon once more."""
        self._ended_at = self._clock()
        usual, all_ended = self._ended_at + self._seconds, self._sizes and not self._open
        self._next = min(self._earliest, usual) if self._is_early or all_ended else usual
        self._is_early = False
        self._last_share = max(_SHARE, self._last_share / 2)  # less and less for one that does not go

    def _read_news(self) -> None:
        for path in [path for path, size in self._sizes.items() if _size(path) != size]:
            self._sizes[path] = _size(path)
            self._has_news, self._last_share = True, _LAST_SHARE
            if read_receipt(path).has_ended:
                self._open.discard(path)
            else:
                self._open.add(path)

    @property
    def _earliest(self) -> float:
        """When it is right to ask because of receipts."""
        share = _SHARE if self._open else self._last_share
        return self._ended_at + (self._ended_at - self._began) / share


def _watched(tracked: Collection[TrackedJob]) -> Iterator[TrackedJob]:
    """Those that may note something next."""
    known = [one for one in tracked if one.slurm_job_id is not None]
    yield from islice((one for one in known if not one.is_waiting), _MOST_RUNNING)
    yield from islice((one for one in known if one.is_waiting), _MOST_WAITING)


def _size(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return -1


class RefreshedValue(Generic[T]):
    """Something of Slurm that is looked at now and then, in a thread of its own, so that nobody waits long for it:
    the last look that came to something. Threads may share it."""

    def __init__(self, name: str, look: Callable[[], T], seconds: float) -> None:
        self.value: T | None = None
        self._name, self._look, self._seconds = name, look, seconds
        self._lock = threading.Lock()
        self._next = 0.0
        self._looked = threading.Event()  # no look is under way
        self._looked.set()

    def refresh(self) -> T:
        """Raises what the look raises; then the last one stays."""
        self.value = self._look()
        return self.value

    def try_refresh(self) -> None:
        """Now, without raising."""
        try:
            self.refresh()
        except (HeliostatError, SlurmRefused) as error:
            log.info(f"{self._name}_unknown", error=str(error))
        except Exception:
            log.exception(f"{self._name}_unknown")

    def refresh_if_stale(self) -> None:
        """Begin a look unless there was one a while ago or one is under way. Returns at once."""
        with self._lock:
            if time.monotonic() < self._next or not self._looked.is_set():
                return
            self._next = time.monotonic() + self._seconds
            self._looked.clear()
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def wait_for_refresh(self, seconds: float) -> None:
        """Until no look is under way, but no longer than this."""
        self._looked.wait(seconds)

    def _run(self) -> None:
        try:
            self.try_refresh()
        finally:
            self._looked.set()
