"""What happens, from whichever thread, kept until the controller's next round."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from heliostat.models import Observation, Started
from heliostat.store.database import Changes

_COMPANY_SECONDS = 0.015  # how long the word that something runs waits for others to share its commit
# Between rounds, so that what happens quickly shares one; the first after a pause is made at once. The longer a
# round takes, the longer is the breath: those who are to be answered meanwhile need the interpreter too.
_SHORTEST_BREATH_SECONDS, _LONGEST_BREATH_SECONDS = 0.01, 0.03
_BREATH_PER_ROUND = 5
_INSTANT_SECONDS = 0.0005


@dataclass(slots=True)
class News:
    """What has happened since the last round."""

    changes: list[Changes] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)

    @property
    def only_starts(self) -> bool:
        """Nothing has happened that lets another job start."""
        if self.changes or not self.observations:
            return False
        return all(isinstance(seen, Started) for seen in self.observations)


class Inbox:
    """Many put in, one takes out."""

    def __init__(self) -> None:
        self._news = News()
        self._wake = threading.Condition()
        self.is_closed = False
        self._taken_at = -inf

    @property
    def is_empty(self) -> bool:
        return not (self._news.changes or self._news.observations)

    def put_changes(self, changes: Changes) -> None:
        with self._wake:
            self._news.changes.append(changes)
            self._wake.notify()

    def put_observations(self, observations: Sequence[Observation]) -> None:
        with self._wake:
            self._news.observations += observations
            self._wake.notify()

    def nudge(self) -> None:
        """Something else has changed: a round is to be made."""
        self.put_changes(Changes())

    def put_back(self, observations: Sequence[Observation]) -> None:
        """Before all that came since they were taken."""
        with self._wake:
            self._news.observations[:0] = observations

    def take(self, longest: Callable[[], float | None]) -> News:
        """Waits until there is some, or so many seconds."""
        earliest = self._taken_at + _breath(time.monotonic() - self._taken_at)
        with self._wake:
            if self.is_empty and not self.is_closed:
                self._wake.wait(longest())
        if (left := earliest - time.monotonic()) > _INSTANT_SECONDS:
            time.sleep(left)
        with self._wake:
            self._taken_at = time.monotonic()
            deadline = self._taken_at + _COMPANY_SECONDS
            while self._news.only_starts and (left := deadline - time.monotonic()) > 0 and not self.is_closed:
                self._wake.wait(left)
            news, self._news = self._news, News()
            return news

    def take_changes(self, is_news: Callable[[Sequence[Changes]], bool]) -> list[Changes]:
        """Those there are; a round more is to be made if they are news."""
        with self._wake:
            changes, self._news.changes = self._news.changes, []
            if is_news(changes):
                self._news.changes.append(Changes())
            return changes

    def drop_changes(self) -> None:
        """All is read anew, in a round to be made."""
        with self._wake:
            self._news.changes = [Changes()]

    def close(self) -> None:
        with self._wake:
            self.is_closed = True
            self._wake.notify()


def _breath(round_seconds: float) -> float:
    return min(max(_SHORTEST_BREATH_SECONDS, round_seconds * _BREATH_PER_ROUND), _LONGEST_BREATH_SECONDS)
