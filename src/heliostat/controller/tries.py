"""Attempts that the engine could not start are tried again a few times, each after a longer while."""

import time
from collections.abc import Iterable

from heliostat.models import Cause, Ended, JobId, Observation, Started, job_of_attempt

_TRIES = 5


class Tries:
    def __init__(self, retry_seconds: float) -> None:
        """`retry_seconds` until the second try; twice as long for each one after it."""
        self._retry_seconds = retry_seconds
        self._failed: dict[JobId, int] = {}
        self._not_before: dict[JobId, float] = {}

    def note(self, observations: Iterable[Observation]) -> None:
        for seen in observations:
            job_id = job_of_attempt(seen.attempt_id)
            if isinstance(seen, Started):
                self._failed.pop(job_id, None)
            elif isinstance(seen, Ended) and seen.cause is Cause.NOT_STARTED and seen.detail:
                failed = self._failed[job_id] = self._failed.get(job_id, 0) + 1
                self._not_before[job_id] = time.monotonic() + self._retry_seconds * 2 ** (failed - 1)

    def may_go_on(self, job_id: JobId) -> bool:
        return self._failed.get(job_id, 0) < _TRIES

    def delayed(self) -> set[JobId]:
        """Whose time to try again has not come."""
        now = time.monotonic()
        self._not_before = {job_id: when for job_id, when in self._not_before.items() if when > now}
        return set(self._not_before)

    def seconds_left(self) -> list[float]:
        """Until each of them."""
        now = time.monotonic()
        return [when - now for when in self._not_before.values()]
