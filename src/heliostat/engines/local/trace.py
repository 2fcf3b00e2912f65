"""What an attempt's wrapper leaves on disk (see attempt.sh), and who may still claim it."""

import contextlib
import os
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from heliostat.engines.local.processes import boot_id
from heliostat.models import AttemptId

_SUFFIXES = ("started", "exit", "timed_out", "payload")
_NO_STATUS = b"---"


@dataclass(frozen=True, slots=True)
class Claim:
    """The wrapper process that runs an attempt."""

    pid: int
    start_time: int


@dataclass(frozen=True, slots=True)
class Ending:
    exit_code: int | None  # None: the wrapper is gone without a word
    timed_out: bool


class Traces:
    """The traces of all attempts of one installation, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, attempt_id: AttemptId, suffix: str = "") -> str:
        return f"{self.folder}/{attempt_id}{suffix}"

    def prepare(self, attempt_id: AttemptId) -> None:
        """Make room for the exit status; FileExistsError when this attempt was started before."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(self.path(attempt_id, ".exit"), flags, 0o600)
        try:
            os.write(descriptor, _NO_STATUS + b"\n" + boot_id().encode() + b"\n")
        finally:
            os.close(descriptor)

    def disown(self, attempt_id: AttemptId) -> bool:
        """Make sure the attempt never runs. False: too late, a wrapper has claimed it."""
        try:
            os.close(os.open(self.path(attempt_id, ".started"), os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        return True

    def claim(self, attempt_id: AttemptId, patience_seconds: float = 1.0) -> Claim | None:
        """Who runs it. Waits for the instant between the making and the writing of the file."""
        deadline = time.monotonic() + patience_seconds
        while True:
            words = Path(self.path(attempt_id, ".started")).read_bytes()
            if words.endswith(b"\n"):
                pid, start_time = words.split()
                return Claim(int(pid), int(start_time))
            if time.monotonic() > deadline:
                return None
            time.sleep(0.01)

    def is_of_this_boot(self, attempt_id: AttemptId) -> bool:
        with contextlib.suppress(OSError, IndexError):
            return self._exit_file(attempt_id)[1] == boot_id().encode()
        return False

    def ending(self, attempt_id: AttemptId) -> Ending:
        """To be asked once the wrapper is gone."""
        exit_code = None
        with contextlib.suppress(OSError, IndexError):
            status = self._exit_file(attempt_id)[0]
            exit_code = None if status == _NO_STATUS else int(status)
        return Ending(exit_code, os.path.exists(self.path(attempt_id, ".timed_out")))

    def remove(self, attempt_ids: Iterable[AttemptId]) -> None:
        for attempt_id in attempt_ids:
            for suffix in _SUFFIXES:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.path(attempt_id, f".{suffix}"))

    def remove_all_but(self, kept: Collection[AttemptId], older_than_seconds: float = 3600) -> None:
        """Sweep what a crash left. Young ones stay: a wrapper may still come and must find itself disowned."""
        before = time.time() - older_than_seconds
        for entry in os.scandir(self.folder):
            attempt_id = entry.name.rpartition(".")[0]
            if attempt_id not in kept and entry.stat().st_mtime < before:
                self.remove([attempt_id])

    def _exit_file(self, attempt_id: AttemptId) -> list[bytes]:
        return Path(self.path(attempt_id, ".exit")).read_bytes().split(b"\n")
