"""When Slurm is asked how our jobs are: every second, and sooner when one of them has noted something itself.

A script notes in its receipt that it has begun or ended (see `receipts.py`). A file system of several machines may
show that late: then the next second tells.
"""

import os
import time
from collections.abc import Callable, Collection, Iterator
from itertools import islice

from heliostat.engines.slurm.handed import Handed

GLANCE_SECONDS = 0.1  # between two glances at the receipts
_MOST_RUNNING = 256  # are watched
_MOST_WAITING = 32
_SHARE = 1 / 20  # of the time, at most, is spent on asking because of receipts


class Lookout:
    """For the thread that asks. `clock` counts seconds."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._next = self._earliest = self._began = 0.0
        self._is_early = False
        self._sizes: dict[str, int] = {}

    @property
    def left(self) -> float:
        """Seconds until it is time to ask."""
        return max(0.0, self._next - self._clock())

    @property
    def glance_left(self) -> float:
        """The same until it is time to glance at the receipts, or to ask."""
        return min(self.left, GLANCE_SECONDS) if self._sizes else self.left

    def glance(self) -> None:
        """At the receipts: with news in them it is time."""
        if self._clock() >= self._earliest and any(_size(path) != size for path, size in self._sizes.items()):
            self._next, self._is_early = self._clock(), True

    def begin(self, handed: Collection[Handed]) -> None:
        """To ask. From here on, what they note is news."""
        self._began = self._clock()
        self._sizes = {one.receipt: _size(one.receipt) for one in _watched(handed)}

    def end(self) -> None:
        """Slurm has answered. A script notes its end a moment before Slurm knows of it: so soon once more."""
        now = self._clock()
        self._earliest = now + (now - self._began) / _SHARE
        self._next = min(self._earliest, now + self._seconds) if self._is_early else now + self._seconds
        self._is_early = False


def _watched(handed: Collection[Handed]) -> Iterator[Handed]:
    """Those who may note something next."""
    known = [one for one in handed if one.number is not None]
    yield from islice((one for one in known if not one.waits), _MOST_RUNNING)
    yield from islice((one for one in known if one.waits), _MOST_WAITING)


def _size(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return -1
