"""Retries of attempts that the engine could not start, or whose GPU failed."""

import time
from collections.abc import Iterable

from heliostat.models import AttemptEnded, AttemptStarted, EndCause, JobId, Observation, job_id_of_attempt

_MAX_START_FAILURES = 5
_MAX_DEVICE_FAILURES = 3  # a program may be what makes GPUs fail: it must not take out all of them


class StartRetries:
    """With increasing delays."""

    def __init__(self, retry_seconds: float) -> None:
        """`retry_seconds`: delay before the first retry; it doubles with each further one."""
        self._retry_seconds = retry_seconds
        self._failed: dict[JobId, int] = {}
        self._device_failures: dict[JobId, int] = {}
        self._not_before: dict[JobId, float] = {}

    def record_observations(self, observations: Iterable[Observation]) -> None:
        for seen in observations:
            job_id = job_id_of_attempt(seen.attempt_id)
            if isinstance(seen, AttemptStarted):
                self._failed.pop(job_id, None)
            elif isinstance(seen, AttemptEnded) and seen.cause is EndCause.NOT_STARTED and seen.detail:
                failed = self._failed[job_id] = self._failed.get(job_id, 0) + 1
                self._not_before[job_id] = time.monotonic() + self._retry_seconds * 2 ** (failed - 1)

            elif isinstance(seen, AttemptEnded) and seen.cause is EndCause.DEVICE_FAILED:
                self._device_failures[job_id] = self._device_failures.get(job_id, 0) + 1

    def may_retry(self, job_id: JobId) -> bool:
        return (
            self._failed.get(job_id, 0) < _MAX_START_FAILURES
            and self._device_failures.get(job_id, 0) < _MAX_DEVICE_FAILURES
        )

    def delayed_jobs(self) -> set[JobId]:
        """Jobs whose next retry is not due yet."""
        now = time.monotonic()
        self._not_before = {job_id: at for job_id, at in self._not_before.items() if at > now}
        return set(self._not_before)

    def seconds_until_retries(self) -> list[float]:
        """For each delayed job."""
        now = time.monotonic()
        return [at - now for at in self._not_before.values()]
