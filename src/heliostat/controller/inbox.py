"""What happens, from whichever thread, kept until the controller's next round."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from heliostat.models import AttemptStarted, Observation
from heliostat.store.database import StoreChanges

_COMPANY_SECONDS = 0.015  # how long the word that something runs waits for others to share its commit


@dataclass(slots=True)
class RoundInput:
    """What has happened since the last round."""

    changes: list[StoreChanges] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)

    @property
    def has_only_starts(self) -> bool:
        """Nothing has happened that lets another job start."""
        if self.changes or not self.observations:
            return False
        return all(isinstance(seen, AttemptStarted) for seen in self.observations)


class Inbox:
    """Many put in, one takes out."""

    def __init__(self) -> None:
        self._news = RoundInput()
        lock = threading.Lock()
        self._wake, self._round_over = threading.Condition(lock), threading.Condition(lock)
        self.is_closed = False
        self._put = self._taken = self._handled = 0  # how many changes

    @property
    def is_empty(self) -> bool:
        return not (self._news.changes or self._news.observations)

    def put_changes(self, changes: StoreChanges) -> None:
        with self._wake:
            self._put += 1
            self._news.changes.append(changes)
            self._wake.notify()

    def put_observations(self, observations: Sequence[Observation]) -> None:
        with self._wake:
            self._news.observations += observations
            self._wake.notify()

    def request_round(self) -> None:
        """Something else has changed: a round is to be made."""
        self.put_changes(StoreChanges())

    def put_back_observations(self, observations: Sequence[Observation]) -> None:
        """Before all that came since they were taken."""
        with self._wake:
            self._news.observations[:0] = observations

    def take(self, longest: Callable[[], float | None]) -> RoundInput:
        """The round before is over. Waits until there is something, or so many seconds."""
        with self._wake:
            self._handled = self._taken
            self._round_over.notify_all()
            if self.is_empty and not self.is_closed:
                self._wake.wait(longest())
            deadline = time.monotonic() + _COMPANY_SECONDS
            while self._news.has_only_starts and (left := deadline - time.monotonic()) > 0 and not self.is_closed:
                self._wake.wait(left)
            news, self._news, self._taken = self._news, RoundInput(), self._put
            return news

    def wait_until_handled(self, seconds: float) -> None:
        """Until a round has seen all changes there are now; no longer than that."""
        with self._round_over:
            until = self._put
            self._round_over.wait_for(lambda: self._handled >= until or self.is_closed, seconds)

    def take_changes(self, is_news: Callable[[Sequence[StoreChanges]], bool]) -> list[StoreChanges]:
        """Those there are; a round more is to be made if they are news."""
        with self._wake:
            changes, self._news.changes, self._taken = self._news.changes, [], self._put
            if is_news(changes):
                self._news.changes.append(StoreChanges())
            return changes

    def discard_changes(self) -> None:
        """All is read anew, in a round to be made."""
        with self._wake:
            self._news.changes = [StoreChanges()]

    def close(self) -> None:
        with self._wake:
            self.is_closed = True
            self._wake.notify()
            self._round_over.notify_all()
