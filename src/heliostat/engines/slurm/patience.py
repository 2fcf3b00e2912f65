"""Submissions that did not go through are tried again, ever more seldom; what keeps them is said meanwhile."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from heliostat.models import AttemptId

LONGEST_SECONDS = 60.0


class NotNow(Exception):
    """It cannot be submitted for the time being; says why."""


@dataclass(frozen=True, slots=True)
class Delay:
    reason: str
    tries: int
    until: float


class Patience:
    """One thread at a time may change what is said of one attempt; all may ask. `clock` counts seconds."""

    def __init__(
        self,
        first_seconds: float,
        longest_seconds: float = LONGEST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first_seconds, self._longest_seconds, self._clock = first_seconds, longest_seconds, clock
        self._delays: dict[AttemptId, Delay] = {}

    def put_off(self, attempt_ids: Iterable[AttemptId], reason: str) -> None:
        for attempt_id in attempt_ids:
            before = self._delays.get(attempt_id)
            tries = 1 if before is None else before.tries + 1
            seconds = min(self._longest_seconds, self._first_seconds * 2.0 ** min(tries - 1, 30))
            self._delays[attempt_id] = Delay(reason, tries, self._clock() + seconds)

    def is_due(self, attempt_id: AttemptId) -> bool:
        delay = self._delays.get(attempt_id)
        return delay is None or self._clock() >= delay.until

    def reason(self, attempt_id: AttemptId) -> str | None:
        """Why it was put off."""
        delay = self._delays.get(attempt_id)
        return None if delay is None else delay.reason

    def forget(self, attempt_ids: Iterable[AttemptId]) -> None:
        for attempt_id in attempt_ids:
            self._delays.pop(attempt_id, None)

    def hurry(self) -> None:
        """What kept them is over: all are due."""
        self._delays.clear()
