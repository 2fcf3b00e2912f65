"""How long jobs really take, learnt from those that are over: mostly much less than their limits."""

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np

from heliostat.models import Job
from heliostat.scheduling.keyed_array import Array

MIN_SAMPLES = 5  # samples from which one may conclude something
_KEPT = 200  # of each kind, the newest
_LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RunDuration:
    """A job that is over, and how long it ran."""

    user: str
    project: str
    job_name: str
    seconds: float
    limit_seconds: float | None


class DurationEstimator:
    """What is known of similar jobs: those of the same user and name, else of the user, else of the project, else
    all. Jobs with a limit are compared by the part of it that they used, those without by their seconds."""

    def __init__(self, assumed_limit_seconds: float) -> None:
        self._assumed = assumed_limit_seconds
        self._samples: dict[Hashable, deque[float]] = {}
        self._sorted: dict[Hashable, Array] = {}

    def add_samples(self, past: Iterable[RunDuration]) -> None:
        """Oldest first."""
        for ran in past:
            part = ran.seconds / (ran.limit_seconds or 1.0)
            for kind in _kinds(ran.user, ran.project, ran.job_name, ran.limit_seconds is not None):
                self._samples.setdefault(kind, deque(maxlen=_KEPT)).append(part)
                self._sorted.pop(kind, None)

    def has_samples_for(self, job: Job) -> bool:
        return self._similar(job) is not None

    def estimate_seconds(self, job: Job, ran_for: float, chance: float) -> float:
        """How long it runs in all, given that it has run so long already; the chance, from 0 to 1, says whether
        it is among the quick or the slow of its kind. Where nothing is known, anything up to its limit."""
        limit = self.limit_seconds(job)
        similar = self._similar(job)
        if similar is None:
            return ran_for + chance * max(limit - ran_for, _LEAST_SECONDS)
        possible = similar if job.time_limit_seconds is None else similar * limit
        possible = possible[np.searchsorted(possible, ran_for, "right") :]
        if not len(possible):  # it has outlived all of them
            return max(limit, ran_for + _LEAST_SECONDS)
        return max(float(possible[int(chance * len(possible))]), _LEAST_SECONDS)

    def limit_seconds(self, job: Job) -> float:
        return float(job.time_limit_seconds or self._assumed)

    def _similar(self, job: Job) -> Array | None:
        for kind in _kinds(job.user, job.project, job.name, job.time_limit_seconds is not None):
            found = self._sorted.get(kind)
            if found is None and len(self._samples.get(kind, ())) >= MIN_SAMPLES:
                found = self._sorted[kind] = np.sort(np.array(self._samples[kind]))
            if found is not None:
                return found
        return None


def _kinds(user: str, project: str, name: str, limited: bool) -> tuple[Hashable, ...]:
    """The most alike first."""
    return ("name", user, name, limited), ("user", user, limited), ("project", project, limited), ("all", limited)
