"""Short jobs that are alike stand ready behind those that run, and start in their places by themselves.

A lane is one place and those who run there one after another. It is as long as it takes to keep the place in use
while the controller looks elsewhere, and never longer than a moment: if one runs longer than the others did, those
behind it are given back.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from heapq import nsmallest
from math import ceil, inf
from statistics import fmean

from heliostat.models import AttemptId, Job, attempt_id
from heliostat.scheduling.relay import Relay
from heliostat.scheduling.snapshot import Start

_SEEN = 12  # of the last ends, all must have been short
_SHORT_SECONDS = 0.1
_MOMENT_SECONDS = 0.2  # of work in a lane
_LONGEST = 40
_AT_FIRST = 20  # behind one that starts now: it is not to wait until many others are recorded
_MOST = 160  # who stand ready in all lanes together
PATIENCE_SECONDS = 0.3  # with whoever runs while others stand behind it


class _Lane:
    """`attempts` begins with the one that runs."""

    def __init__(self, first: Start, now: float) -> None:
        self.like = replace(first.job, node=first.node)
        self.attempts = deque([attempt_id(first.job.id, first.job.attempt + 1)])
        self.moved_at = now
        self.is_closed = False

    def leave(self, number: AttemptId, now: float) -> None:
        if self.attempts[0] == number:
            self.moved_at, self.is_closed = now, False
        self.attempts.remove(number)


class Lanes:
    """What stands behind what, as it was told to the engine. Times are those of a clock that is never set."""

    def __init__(self) -> None:
        self._lane_of: dict[AttemptId, _Lane] = {}
        self._seconds: deque[float] = deque(maxlen=_SEEN)

    @property
    def waiting(self) -> int:
        return len(self._lane_of) - len(self._all())

    def note_end(self, started_at: datetime | None, ended_at: datetime) -> None:
        """Of one that has not started nobody knows how long it would take."""
        self._seconds.append((ended_at - started_at).total_seconds() if started_at else inf)

    def __contains__(self, number: AttemptId) -> bool:
        return number in self._lane_of

    def end(self, numbers: Iterable[AttemptId], now: float) -> tuple[set[AttemptId], list[Job]]:
        """They run or stand there no more. Those of them in whose place nobody is now; and for each lane that has
        become empty one that ran there."""
        touched: dict[AttemptId, _Lane | None] = {}
        for number in numbers:
            lane = touched[number] = self._lane_of.pop(number, None)
            if lane is not None:
                lane.leave(number, now)
        empty = {id(lane): lane.like for lane in touched.values() if lane is not None and not lane.attempts}
        return {number for number, lane in touched.items() if not (lane and lane.attempts)}, list(empty.values())

    def fill(
        self, relay: Relay, starts: Iterable[Start], now: float, *, others_run: bool = True
    ) -> list[tuple[AttemptId, list[Job]]]:
        """Who is to stand ready, and behind whom. Those who start now may have others behind them at once.

        Where others run, half of those who wait stay: places that are no lanes become empty too.
        """
        depth = self._depth()
        if not depth:
            return []
        new = [_Lane(start, now) for start in starts]
        self._lane_of |= {lane.attempts[0]: lane for lane in new}
        free, every = _MOST - self.waiting, self._all()
        even = ceil((len(self._lane_of) + relay.waiting) / len(every)) if every else 0
        found = []
        for lane in nsmallest(_MOST, every, key=lambda lane: len(lane.attempts)):
            if lane.is_closed or now - lane.moved_at > PATIENCE_SECONDS:
                continue
            most = min(depth, _AT_FIRST) if lane in new else depth
            may_go = relay.waiting // 2 if others_run else relay.waiting
            room = min(free, min(1 + most, even) - len(lane.attempts), may_go)
            if jobs := relay.next_like(lane.like, room):
                free -= len(jobs)
                found.append((lane.attempts[-1], jobs))
        return found

    def stand(self, number: AttemptId, behind: AttemptId) -> None:
        """It was handed to the engine."""
        lane = self._lane_of.get(behind)
        if lane is not None:
            lane.attempts.append(number)
            self._lane_of[number] = lane

    def close_behind(self, number: AttemptId) -> None:
        """Nobody else may stand behind it."""
        if lane := self._lane_of.get(number):
            lane.is_closed = True

    def close(self, now: float, relay: Relay) -> list[AttemptId]:
        """Who is to be given back: where somebody runs for long, or where the line of the relay may not go on."""
        found: list[AttemptId] = []
        for lane in self._all():
            if len(lane.attempts) == 1 or lane.is_closed:
                continue
            if now - lane.moved_at > PATIENCE_SECONDS or not relay.lets_pass(lane.like):
                lane.is_closed = True
                found += list(lane.attempts)[1:]
        return found

    def seconds_to_close(self, now: float) -> float | None:
        moved = [lane.moved_at for lane in self._all() if len(lane.attempts) > 1 and not lane.is_closed]
        return min(moved) + PATIENCE_SECONDS - now if moved else None

    def _all(self) -> list[_Lane]:
        return list({id(lane): lane for lane in self._lane_of.values()}.values())

    def _depth(self) -> int:
        """How many may stand behind one; none until it is known that they are short."""
        if len(self._seconds) < _SEEN or max(self._seconds) > _SHORT_SECONDS:
            return 0
        return int(_MOMENT_SECONDS / max(_MOMENT_SECONDS / _LONGEST, fmean(self._seconds)))
