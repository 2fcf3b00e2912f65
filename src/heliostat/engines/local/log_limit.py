"""Log limit: removes the middle of a log that has become too large, while the job writes to it.

The removed part becomes a hole in the file: its blocks are free, and all offsets stay valid, both for the job that
appends and for readers, which skip holes. The first bytes after the hole are replaced by a line that says so.
"""

import ctypes
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from heliostat.engines.job_folders import JobFolder
from heliostat.engines.local.log_order import STREAMS
from heliostat.engines.log_holes import DISK_BLOCK_BYTES
from heliostat.models import Attempt
from heliostat.server_log import get_logger

log = get_logger()
_KEEP_SIZE, _PUNCH_HOLE = 0x1, 0x2
_ALIGNMENT = 64 * 1024  # a hole in part of a block would be read as zeros
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # O_NONBLOCK: its owner may hold a lease


class LogLimit:
    """The size of one log on disk. When it is exceeded, the first eighth and the newest half of it are kept."""

    def __init__(self, jobs: Path, max_bytes: int) -> None:
        self._jobs, self._max_bytes = jobs, max_bytes
        self._failed: set[str] = set()

    def list_exceeding(self, attempts: Iterable[Attempt]) -> list[str]:
        """The logs that are too large."""
        return [path for attempt in attempts for path in self._log_paths(attempt) if self._is_too_large(path)]

    def apply(self, attempts: Iterable[Attempt]) -> None:
        """Logs a failure, for example on a file system without holes, once for each log."""
        for path in self.list_exceeding(attempts):
            try:
                self._remove_middle(path)
            except OSError as error:
                if path not in self._failed:
                    log.warning("log_limit_not_applied", path=path, error=str(error))
                self._failed.add(path)

    def _log_paths(self, attempt: Attempt) -> list[str]:
        folder = JobFolder.for_job(self._jobs, attempt.job.id)
        return [folder.log_path(attempt.job.attempt, stream) for stream in STREAMS]

    def _is_too_large(self, path: str) -> bool:
        try:
            return self._exceeds(os.lstat(path))
        except OSError:
            return False

    def _exceeds(self, status: os.stat_result) -> bool:
        """A file system may reserve more blocks than a file needs, and holes need none."""
        return min(status.st_size, status.st_blocks * DISK_BLOCK_BYTES) > self._max_bytes

    def _remove_middle(self, path: str) -> None:
        descriptor = os.open(path, _FLAGS)
        try:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and self._exceeds(status):
                start, end = _align(self._max_bytes // 8), _align(status.st_size - self._max_bytes // 2)
                _punch_hole(descriptor, start, end - start)
                notice = f"\n[Heliostat removed {end - start:,} bytes of output here: see storage.log_max_size]\n"
                os.pwrite(descriptor, notice.encode(), end)
        finally:
            os.close(descriptor)


def _align(offset: int) -> int:
    return offset // _ALIGNMENT * _ALIGNMENT


def _punch_hole(descriptor: int, offset: int, length: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if libc.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, offset, length) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
