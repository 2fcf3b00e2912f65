"""What an attempt's wrapper leaves on disk (see attempt.sh), and who may still claim it."""

import contextlib
import os
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from heliostat.engines.local.processes import boot_id
from heliostat.models import AttemptId

_SUFFIXES = ("started", "timed_out", "payload", "limit", "limit.new")
_DISOWNED = b"disowned\n"
_PATIENCE_SECONDS = 5.0
_WORDS, _WORDS_WITH_GROUP = 4, 5  # of a claim; wrappers of an earlier version named their cgroup too
_MOST_BYTES = 4096  # of a trace, which has less than a hundred


@dataclass(frozen=True, slots=True)
class WrapperClaim:
    """The wrapper process that runs an attempt; the time in the ticks of `processes.start_time`.

    Without a time it is our own child: its number stays its own until we have waited for it. To ask for the time
    of a program that is just being loaded would mean to wait for that.
    """

    pid: int
    start_time: int | None = None
    cgroup_name: str = ""  # the name of its cgroup


@dataclass(frozen=True, slots=True)
class WrapperExit:
    exit_code: int | None  # None: the wrapper is gone without a word
    timed_out: bool
    written_at: datetime | None = None  # when it was written, by the clock of the file system


class ClaimFiles:
    """The traces of all attempts of one installation, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._extending = threading.Lock()

    def path(self, attempt_id: AttemptId, suffix: str = "") -> str:
        return f"{self.folder}/{attempt_id}{suffix}"

    def is_claimed(self, attempt_id: AttemptId) -> bool:
        return os.access(self.path(attempt_id, ".started"), os.F_OK)

    def disown(self, attempt_id: AttemptId) -> bool:
        """Make sure the attempt never runs. False: too late, a wrapper has claimed it."""
        try:
            descriptor = os.open(self.path(attempt_id, ".started"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return self._is_disowned(attempt_id)
        with open(descriptor, "wb") as file:
            file.write(_DISOWNED)
        return True

    def read_claim(self, attempt_id: AttemptId) -> WrapperClaim | None:
        """Who runs it since this boot."""
        words, _ = self._read(attempt_id)
        boot, _, born = words[2].partition(":") if words else ("", "", "")
        if words is None or boot != boot_id():
            return None
        group = words[3] if len(words) == _WORDS_WITH_GROUP else attempt_id
        return WrapperClaim(int(words[0]), int(born), group)

    def read_exit(self, attempt_id: AttemptId) -> WrapperExit:
        """To be asked once the wrapper is gone."""
        words, written_at = self._read(attempt_id)
        status = words[-1].rstrip("+-") if words else ""
        timed_out = os.path.exists(self.path(attempt_id, ".timed_out"))
        if not status:
            return WrapperExit(None, timed_out)
        return WrapperExit(int(status), timed_out, datetime.fromtimestamp(written_at, UTC))

    def read_claim_time(self, attempt_id: AttemptId) -> datetime | None:
        """When its wrapper began, if that was since this boot."""
        words, _ = self._read(attempt_id)
        if words is None or words[2].partition(":")[0] != boot_id():
            return None
        return datetime.now(UTC) - timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME) - float(words[1]))

    def extend_time_limit(self, attempt_id: AttemptId, limit_seconds: int) -> None:
        """Its wrapper reads this when the time it knows of is over. Never a shorter one than before."""
        with self._extending:
            if self._limit(attempt_id) >= limit_seconds:
                return
            draft = self.path(attempt_id, ".limit.new")
            with open(draft, "w", encoding="ascii") as file:
                file.write(f"{limit_seconds}\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self.path(attempt_id, ".limit"))

    def _limit(self, attempt_id: AttemptId) -> int:
        """What it was extended to; 0: it was not."""
        try:
            with open(self.path(attempt_id, ".limit"), encoding="ascii") as file:
                return int(file.read())
        except (FileNotFoundError, ValueError):
            return 0

    def remove(self, attempt_ids: Iterable[AttemptId]) -> None:
        for attempt_id in attempt_ids:
            for suffix in _SUFFIXES:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.path(attempt_id, f".{suffix}"))

    def remove_all_except(self, kept: Collection[AttemptId], older_than_seconds: float = 3600) -> None:
        """Sweep what is over. The young stay: a wrapper may still come and must find itself disowned."""
        before = time.time() - older_than_seconds
        over = {_attempt_of(entry.name) for entry in os.scandir(self.folder) if entry.stat().st_mtime < before}
        self.remove(over.difference(kept))

    def _is_disowned(self, attempt_id: AttemptId) -> bool:
        """Empty for long: whoever made the file died before it could write, and nothing ran."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        path = Path(self.path(attempt_id, ".started"))
        while not (text := path.read_bytes()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return text in (b"", _DISOWNED)

    def _read(self, attempt_id: AttemptId) -> tuple[list[str] | None, float]:
        """The words of its wrapper, once they are complete, and when they were written.

        Plain os calls: this happens hundreds of times a second.
        """
        try:
            descriptor = os.open(self.path(attempt_id, ".started"), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None, 0.0
        try:
            text, written_at = os.read(descriptor, _MOST_BYTES), os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)
        words = text.decode("ascii", "replace").split()
        return (words if text.endswith(b"\n") and len(words) in (_WORDS, _WORDS_WITH_GROUP) else None), written_at


def _attempt_of(file: str) -> AttemptId:
    """ "12.1" of "12.1.limit.new"."""
    return ".".join(file.split(".")[:2])
