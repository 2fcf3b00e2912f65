"""Run time estimates from finished jobs; most jobs end well before their time limit."""

import math
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np

from heliostat.models import Job
from heliostat.models.environments import INTERNAL_JOB_KINDS
from heliostat.scheduling.keyed_array import Array

MIN_SAMPLES = 5  # fewer samples are ignored
_MAX_SAMPLES = 200  # per group, the newest
_LEAST_SECONDS = 1.0
_SMALLEST_CHANCE = 0.01
_BUILD_SECONDS = 600.0  # the longest build of software that is expected without samples


@dataclass(frozen=True, slots=True)
class RunDuration:
    """Run time of a finished job."""

    user: str
    project: str
    job_name: str
    seconds: float
    limit_seconds: float | None
    kind: str = "batch"


class DurationEstimator:
    """Estimates from similar jobs: of the same user and name, else of the user, else of the project, else of all.
    Builds of software are similar to all builds of their kind, and their time limit is far above their run times.
    For jobs with a time limit the samples are fractions of the limit, for others seconds."""

    def __init__(self, assumed_limit_seconds: float) -> None:
        self._assumed = assumed_limit_seconds
        self._samples: dict[Hashable, deque[float]] = {}
        self._sorted: dict[Hashable, Array] = {}

    def add_samples(self, past: Iterable[RunDuration]) -> None:
        """Oldest first."""
        for run in past:
            sample = run.seconds / (run.limit_seconds or 1.0)
            for group in _groups(run.kind, run.user, run.project, run.job_name, run.limit_seconds is not None):
                self._samples.setdefault(group, deque(maxlen=_MAX_SAMPLES)).append(sample)
                self._sorted.pop(group, None)

    def has_samples_for(self, job: Job) -> bool:
        return self._similar(job) is not None

    def estimate_seconds(self, job: Job, ran_for: float, chance: float) -> float:
        """Total run time of a job that has run for `ran_for` seconds already. `chance`, from 0 to 1, is the
        quantile among similar jobs; without samples, all times up to the limit are equally likely. A job that has
        run longer than all similar jobs will run as long again with a probability of one half (a Pareto
        distribution)."""
        limit = self.limit_seconds(job, ran_for)
        similar = self._similar(job)
        if similar is None:
            limit = min(limit, _BUILD_SECONDS) if job.kind in INTERNAL_JOB_KINDS else limit
            return ran_for + chance * max(limit - ran_for, _LEAST_SECONDS)
        possible = similar if job.time_limit_seconds is None else similar * job.time_limit_seconds
        possible = possible[np.searchsorted(possible, ran_for, "right") :]
        if not len(possible):
            return max(min(ran_for / max(1.0 - chance, _SMALLEST_CHANCE), limit), ran_for + _LEAST_SECONDS)
        return max(float(possible[int(chance * len(possible))]), _LEAST_SECONDS)

    def limit_seconds(self, job: Job, ran_for: float = 0.0) -> float:
        """The assumed limit of a job without a time limit doubles whenever it is exceeded. A job in overtime runs
        for the assumed limit from now on."""
        if job.time_limit_seconds is None:
            return self._assumed * 2.0 ** max(0, math.floor(math.log2(max(ran_for / self._assumed, 0.5)) + 1))
        if job.overtime and ran_for >= job.time_limit_seconds:
            return ran_for + self._assumed
        return float(job.time_limit_seconds)

    def _similar(self, job: Job) -> Array | None:
        for group in _groups(job.kind, job.user, job.project, job.name, job.time_limit_seconds is not None):
            samples = self._sorted.get(group)
            if samples is None and len(self._samples.get(group, ())) >= MIN_SAMPLES:
                samples = self._sorted[group] = np.sort(np.array(self._samples[group]))
            if samples is not None:
                return samples
        return None


def _groups(kind: str, user: str, project: str, name: str, limited: bool) -> tuple[Hashable, ...]:
    """Groups of similar jobs, the most specific first."""
    if kind in INTERNAL_JOB_KINDS:
        return (("kind", kind, limited),)
    return ("name", user, name, limited), ("user", user, limited), ("project", project, limited), ("all", limited)
