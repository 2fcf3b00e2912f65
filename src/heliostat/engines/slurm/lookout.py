"""When Slurm is asked how our jobs are: every second, and sooner when one of them has noted something itself.

A script notes in its receipt that it has begun or ended (see `receipts.py`). A file system of several machines may
show that late: then the next second tells.
"""

import os
import time
from collections.abc import Callable, Collection, Iterator
from itertools import islice

from heliostat.engines.slurm.handed import Handed
from heliostat.engines.slurm.receipts import read_receipt

GLANCE_SECONDS = 0.1  # between two glances at the receipts
_MOST_RUNNING = 256  # are watched
_MOST_WAITING = 32
_SHARE = 1 / 20  # of the time, at most, is spent on asking because of receipts
_LAST_SHARE = 1 / 5  # the same, while all who are watched have noted their end


class Lookout:
    """For the thread that asks. `clock` counts seconds."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._next = self._began = self._ended_at = 0.0
        self._has_news = self._is_early = False
        self._last_share = _LAST_SHARE
        self._sizes: dict[str, int] = {}
        self._open: set[str] = set()  # of these, who have not noted their end

    @property
    def left(self) -> float:
        """Seconds until it is time to ask."""
        return max(0.0, self._next - self._clock())

    @property
    def glance_left(self) -> float:
        """The same until it is time to glance at the receipts, or to ask."""
        return min(self.left, GLANCE_SECONDS) if self._sizes else self.left

    def glance(self) -> None:
        """At the receipts: with news in them it is time, or will be soon."""
        self._read_news()
        if self._has_news and self._clock() >= self._earliest:
            self._next, self._is_early = self._clock(), True

    def begin(self, handed: Collection[Handed]) -> None:
        """To ask. From here on, what they note is news."""
        self._began, before = self._clock(), self._sizes
        self._sizes = {one.receipt: before.get(one.receipt, 0) for one in _watched(handed)}
        self._open = {path for path in self._sizes if path in self._open or path not in before}
        self._read_news()
        self._has_news = False

    def end(self) -> None:
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
