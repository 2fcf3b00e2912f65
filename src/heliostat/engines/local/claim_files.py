"""Claim files: the files that the wrapper of an attempt writes (see attempt.sh), and claims on attempts."""

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
_EMPTY_FILE_SECONDS = 5.0
_WORDS, _WORDS_WITH_GROUP = 4, 5  # of a claim; wrappers of an earlier version wrote their cgroup too
_MAX_BYTES = 4096  # a claim file has less than 100


@dataclass(frozen=True, slots=True)
class WrapperClaim:
    """The wrapper process that runs an attempt.

    `start_time` is in clock ticks, see `processes.process_start_time`. None: it is our own child, whose pid cannot
    be reused before we wait for it. Reading the start time of a program that is being loaded would block.
    """

    pid: int
    start_time: int | None = None
    cgroup_name: str = ""


@dataclass(frozen=True, slots=True)
class WrapperExit:
    exit_code: int | None  # None: the wrapper ended without writing one
    timed_out: bool
    written_at: datetime | None = None  # modification time of the file


class ClaimFiles:
    """The claim files of all attempts of one installation, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._extending = threading.Lock()

    def path(self, attempt_id: AttemptId, suffix: str = "") -> str:
        return f"{self.folder}/{attempt_id}{suffix}"

    def attempt_ids(self) -> set[AttemptId]:
        return {_attempt_of(name) for name in os.listdir(self.folder) if name.endswith(".started")}

    def is_claimed(self, attempt_id: AttemptId) -> bool:
        return os.access(self.path(attempt_id, ".started"), os.F_OK)

    def disown(self, attempt_id: AttemptId) -> bool:
        """Make sure that the attempt never runs. False: a wrapper has already claimed it."""
        try:
            descriptor = os.open(self.path(attempt_id, ".started"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return self._is_disowned(attempt_id)
        with open(descriptor, "wb") as file:
            file.write(_DISOWNED)
        return True

    def read_claim(self, attempt_id: AttemptId) -> WrapperClaim | None:
        """The wrapper that claimed the attempt since the last boot."""
        words, _ = self._read(attempt_id)
        boot, _, start_time = words[2].partition(":") if words else ("", "", "")
        if words is None or boot != boot_id():
            return None
        group = words[3] if len(words) == _WORDS_WITH_GROUP else attempt_id
        return WrapperClaim(int(words[0]), int(start_time), group)

    def read_exit(self, attempt_id: AttemptId) -> WrapperExit:
        """Call this after the wrapper has ended."""
        words, written_at = self._read(attempt_id)
        status = words[-1].rstrip("+-") if words else ""
        timed_out = os.path.exists(self.path(attempt_id, ".timed_out"))
        if not status:
            return WrapperExit(None, timed_out)
        return WrapperExit(int(status), timed_out, datetime.fromtimestamp(written_at, UTC))

    def read_claim_time(self, attempt_id: AttemptId) -> datetime | None:
        """When the wrapper started; None: before the last boot."""
        words, _ = self._read(attempt_id)
        if words is None or words[2].partition(":")[0] != boot_id():
            return None
        return datetime.now(UTC) - timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME) - float(words[1]))

    def extend_time_limit(self, attempt_id: AttemptId, limit_seconds: int) -> None:
        """The wrapper reads the new limit when the old one is reached. A shorter limit than before is ignored."""
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
        """The extended limit; 0: not extended."""
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
        """Remove files of ended attempts. Recent files stay: a late wrapper must find its attempt disowned."""
        before = time.time() - older_than_seconds
        old = {_attempt_of(entry.name) for entry in os.scandir(self.folder) if entry.stat().st_mtime < before}
        self.remove(old.difference(kept))

    def _is_disowned(self, attempt_id: AttemptId) -> bool:
        """If the file stays empty, the process that created it died before it could write, and nothing ran."""
        deadline = time.monotonic() + _EMPTY_FILE_SECONDS
        path = Path(self.path(attempt_id, ".started"))
        while not (text := path.read_bytes()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return text in (b"", _DISOWNED)

    def _read(self, attempt_id: AttemptId) -> tuple[list[str] | None, float]:
        """The words of the claim (None: incomplete) and the modification time of the file.

        Plain os calls, since this runs hundreds of times per second.
        """
        try:
            descriptor = os.open(self.path(attempt_id, ".started"), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None, 0.0
        try:
            text, written_at = os.read(descriptor, _MAX_BYTES), os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)
        words = text.decode("ascii", "replace").split()
        return (words if text.endswith(b"\n") and len(words) in (_WORDS, _WORDS_WITH_GROUP) else None), written_at


def _attempt_of(file: str) -> AttemptId:
    """ "12.1" of "12.1.limit.new"."""
    return ".".join(file.split(".")[:2])
