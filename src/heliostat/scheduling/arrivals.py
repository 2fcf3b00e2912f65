"""Past submissions of jobs, for forecasts: other jobs arrive while a job waits."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

import numpy as np

from heliostat.models import Job, JobId, JobState

_DAY = 86400.0
MAX_ARRIVAL_DAYS = 14
MAX_ARRIVALS = 5_000


class ArrivalHistory:
    """The jobs submitted in the last 14 days, in the order of submission; at most the newest 5,000."""

    def __init__(self, jobs: Iterable[Job] = ()) -> None:
        self._jobs = deque(jobs, MAX_ARRIVALS)

    def add(self, job: Job) -> None:
        self._jobs.append(job)

    def copy(self) -> "ArrivalHistory":
        return ArrivalHistory(self._jobs)

    def sample(self, now: float, seed: int, first_id: JobId) -> Iterator[tuple[float, Job]]:
        """Arrivals from now on: each day is like one of the past days, drawn at random. Without end, unless
        nothing has arrived."""
        days, day_seconds = self._past_days(now)
        generator, job_ids = np.random.default_rng(seed), count(first_id)
        for number in count() if any(days) else ():
            begin = now + number * day_seconds
            for since_begin, job in days[generator.integers(len(days))]:
                at = begin + since_begin
                yield at, _submitted_again(job, next(job_ids), datetime.fromtimestamp(at, UTC))

    def _past_days(self, now: float) -> tuple[list[list[tuple[float, Job]]], float]:
        """The jobs of each of the last days, with the seconds since the day began, and the length of a day: less
        than 24 hours if more than 5,000 jobs arrive in one."""
        if not self._jobs:
            return [], _DAY
        known_seconds = max(now - self._jobs[0].submitted_at.timestamp(), 1.0)
        day_seconds = min(_DAY, known_seconds) if len(self._jobs) == MAX_ARRIVALS else _DAY
        count_known = max(1, min(int(known_seconds / day_seconds), MAX_ARRIVAL_DAYS))
        days: list[list[tuple[float, Job]]] = [[] for _ in range(count_known)]
        for job in self._jobs:
            ago = now - job.submitted_at.timestamp()
            if 0 < ago <= len(days) * day_seconds:
                number = min(int(ago / day_seconds), len(days) - 1)
                days[number].append(((number + 1) * day_seconds - ago, job))
        return days, day_seconds


def _submitted_again(job: Job, job_id: JobId, at: datetime) -> Job:
    """Without what refers to other jobs and to what has happened to it."""
    return replace(
        job,
        id=job_id,
        submitted_at=at,
        state=JobState.PENDING,
        array_id=None,
        array_limit=None,
        parents_left=0,
        begin_at=None,
        booked_at=None,
        waits_since=None,
        waited_seconds=0.0,
        attempt=0,
        started_at=None,
        ended_at=None,
        node=None,
        devices=(),
        places=(),
        stop_requested=None,
        preemptions=0,
        checkpointed_at=None,
    )
