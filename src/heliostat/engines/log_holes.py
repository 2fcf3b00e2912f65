"""Holes in log files: where output was removed, or where a job has written nothing. Reading them gives zeros."""

import os
from collections.abc import Iterator

DISK_BLOCK_BYTES = 512  # the unit of st_blocks


def find_holes(descriptor: int) -> Iterator[tuple[int, int]]:
    """(start, end) of each, in order. Moves the position of the descriptor. What a job truncates meanwhile is a
    hole."""
    status = os.fstat(descriptor)
    size, at = status.st_size, 0
    if status.st_blocks * DISK_BLOCK_BYTES >= size:
        return
    while at < size and (begin := _seek(descriptor, at, os.SEEK_HOLE, at)) < size:
        at = min(_seek(descriptor, begin, os.SEEK_DATA, size), size)
        yield begin, at


def _seek(descriptor: int, at: int, what: int, otherwise: int) -> int:
    """`otherwise`: if the file ends before."""
    try:
        return os.lseek(descriptor, at, what)
    except OSError:  # ENXIO
        return otherwise


class OutputReader:
    """The output in a log file, without its holes, up to its size at this time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size - sum(end - begin for begin, end in find_holes(descriptor))
        self._holes = find_holes(descriptor)
        self._at = 0
        self._next_hole = next(self._holes, None)

    def read(self, size: int) -> bytes:
        """Less than `size` only at the end."""
        data = b""
        while (left := size - len(data)) > 0:
            if self._next_hole and self._at >= self._next_hole[0]:
                self._at = self._next_hole[1]
                self._next_hole = next(self._holes, None)
            if self._next_hole:
                left = min(left, self._next_hole[0] - self._at)
            part = os.pread(self._descriptor, left, self._at)
            if not part:
                break
            self._at += len(part)
            data += part
        return data
