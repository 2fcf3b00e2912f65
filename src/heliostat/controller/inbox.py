"""Inbox of the controller: changes and observations from all threads until its next round."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from heliostat.models import AttemptStarted, Observation
from heliostat.store.database import StoreChanges

_BATCH_SECONDS = 0.015  # started attempts wait this long for others to share one commit


@dataclass(slots=True)
class RoundInput:
    """Changes and observations since the last round."""

    changes: list[StoreChanges] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)

    @property
    def has_only_starts(self) -> bool:
        """Whether nothing in it can let another job start."""
        if self.changes or not self.observations:
            return False
        return all(isinstance(seen, AttemptStarted) for seen in self.observations)


class Inbox:
    """Many threads add, one thread takes."""

    def __init__(self) -> None:
        self._input = RoundInput()
        lock = threading.Lock()
        self._wake, self._round_ended = threading.Condition(lock), threading.Condition(lock)
        self.is_closed = False
        self._put = self._taken = self._handled = 0  # numbers of changes

    @property
    def is_empty(self) -> bool:
        return not (self._input.changes or self._input.observations)

    def put_changes(self, changes: StoreChanges) -> None:
        with self._wake:
            self._put += 1
            self._input.changes.append(changes)
            self._wake.notify()

    def put_observations(self, observations: Sequence[Observation]) -> None:
        with self._wake:
            self._input.observations += observations
            self._wake.notify()

    def request_round(self) -> None:
        """Start a round because something else has changed."""
        self.put_changes(StoreChanges())

    def put_back_observations(self, observations: Sequence[Observation]) -> None:
        """Before all observations that arrived since they were taken."""
        with self._wake:
            self._input.observations[:0] = observations

    def take(self, timeout: Callable[[], float | None]) -> RoundInput:
        """Ends the previous round. Waits until there is input, or for this number of seconds."""
        with self._wake:
            self._handled = self._taken
            self._round_ended.notify_all()
            if self.is_empty and not self.is_closed:
                self._wake.wait(timeout())
            deadline = time.monotonic() + _BATCH_SECONDS
            while self._input.has_only_starts and (left := deadline - time.monotonic()) > 0 and not self.is_closed:
                self._wake.wait(left)
            taken, self._input, self._taken = self._input, RoundInput(), self._put
            return taken

    def wait_until_handled(self, seconds: float) -> None:
        """Until a round has handled all current changes; at most this number of seconds."""
        with self._round_ended:
            until = self._put
            self._round_ended.wait_for(lambda: self._handled >= until or self.is_closed, seconds)

    def take_changes(self, needs_round: Callable[[Sequence[StoreChanges]], bool]) -> list[StoreChanges]:
        """The current changes. If they need a round, one is requested."""
        with self._wake:
            changes, self._input.changes, self._taken = self._input.changes, [], self._put
            if needs_round(changes):
                self._input.changes.append(StoreChanges())
            return changes

    def discard_changes(self) -> None:
        """Everything will be read again, in a round that is requested here."""
        with self._wake:
            self._input.changes = [StoreChanges()]

    def close(self) -> None:
        with self._wake:
            self.is_closed = True
            self._wake.notify()
            self._round_ended.notify_all()
