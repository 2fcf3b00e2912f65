"""Run time estimates from finished jobs; most jobs end well before their time limit."""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np

from heliostat.models import Job, JobState
from heliostat.models.environments import INTERNAL_JOB_KINDS
from heliostat.scheduling.keyed_array import Array

MIN_SAMPLES = 5  # fewer samples are ignored
_MAX_SAMPLES = 200  # per group, the newest
_MAX_GROUPS = 50_000  # the ones with the newest samples
_LEAST_SECONDS = 1.0
_SMALLEST_CHANCE = 0.01
_BUILD_SECONDS = 600.0  # the longest build of software that is expected without samples
_SMALLEST_EXPECTED = 1 / 8  # of the limit: a wrong expectation is worth at most three points


@dataclass(frozen=True, slots=True)
class RunDuration:
    """Run time of a finished job."""

    user: str
    project: str
    job_name: str
    seconds: float
    limit_seconds: float | None
    kind: str = "batch"

    @property
    def groups(self) -> tuple[Hashable, ...]:
        return _groups(self.kind, self.user, self.project, self.job_name, self.limit_seconds is not None)


class DurationEstimator:
    """Estimates from similar jobs: of the same user and name, else of the user, else of the project, else of all.
    Builds of software are similar to all builds of their kind, and their time limit is far above their run times.
    For jobs with a time limit the samples are fractions of the limit, for others seconds."""

    def __init__(self, assumed_limit_seconds: float) -> None:
        self._assumed = assumed_limit_seconds
        self._samples: dict[Hashable, Array] = {}  # by group: sample and seconds, the newest last; never modified
        self._sorted: dict[Hashable, Array] = {}  # cache
        self._means: dict[Hashable, float] = {}  # cache

    def add_samples(self, past: Iterable[RunDuration]) -> None:
        """Oldest first."""
        new: defaultdict[Hashable, list[tuple[float, float]]] = defaultdict(list)
        for run in past:
            for group in run.groups:
                new[group].append((run.seconds / (run.limit_seconds or 1.0), run.seconds))
        for group, samples in new.items():
            known = self._samples.pop(group, np.empty((0, 2)))
            self._samples[group] = np.concatenate([known, samples])[-_MAX_SAMPLES:]
            self._forget_caches(group)
        while len(self._samples) > _MAX_GROUPS:
            oldest = next(iter(self._samples))
            del self._samples[oldest]
            self._forget_caches(oldest)

    def copy(self) -> "DurationEstimator":
        other = DurationEstimator(self._assumed)
        other._samples = self._samples.copy()
        other._sorted, other._means = self._sorted.copy(), self._means.copy()
        return other

    def has_samples_for(self, job: Job) -> bool:
        return self._similar(job) is not None

    def expected_seconds(self, job: Job, limits: float | Array) -> float | Array:
        """The run time by which the queue orders this job, or jobs like it with these limits: the mean of jobs of
        the same user and name, each weighted by its own run time, and at least an eighth of the limit; without
        samples the limit. Because of the weights, short jobs hardly disguise a long one."""
        group = _groups_of(job)[0]
        if len(self._samples.get(group, ())) < MIN_SAMPLES:
            return limits
        mean = self._means.get(group)
        if mean is None:
            samples, seconds = self._samples[group].T
            weights = np.maximum(seconds, _LEAST_SECONDS)
            mean = self._means[group] = float(samples @ weights / weights.sum())
        expected = mean if job.time_limit_seconds is None else mean * limits
        return np.minimum(np.maximum(expected, _SMALLEST_EXPECTED * limits), limits)

    def estimate_seconds(self, job: Job, ran_for: float, chance: float) -> float:
        """Total run time of a job that has run for `ran_for` seconds already. `chance`, from 0 to 1, is the
        quantile among similar jobs; without samples, all times up to the limit are equally likely. A job that has
        run longer than all similar jobs will run as long again with a probability of one half (a Pareto
        distribution)."""
        limit = self.limit_seconds(job, ran_for)
        group = self._similar(job)
        if group is None:
            limit = min(limit, _BUILD_SECONDS) if job.kind in INTERNAL_JOB_KINDS else limit
            return ran_for + chance * max(limit - ran_for, _LEAST_SECONDS)
        possible = self._sorted_samples(group)
        if job.time_limit_seconds is not None:
            possible = possible * job.time_limit_seconds
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

    def _similar(self, job: Job) -> Hashable | None:
        """The most specific group with enough samples."""
        for group in _groups_of(job):
            if len(self._samples.get(group, ())) >= MIN_SAMPLES:
                return group
        return None

    def _forget_caches(self, group: Hashable) -> None:
        self._sorted.pop(group, None)
        self._means.pop(group, None)

    def _sorted_samples(self, group: Hashable) -> Array:
        samples = self._sorted.get(group)
        if samples is None:
            samples = self._sorted[group] = np.sort(self._samples[group][:, 0])
        return samples


def run_duration_of(job: Job) -> RunDuration | None:
    """Of a job that has ended and ran; None: its run time says nothing about similar jobs."""
    if not job.is_terminal or job.state is JobState.LOST or job.started_at is None or job.ended_at is None:
        return None
    seconds = max((job.ended_at - job.started_at).total_seconds(), 0.0)
    return RunDuration(job.user, job.project, job.name, seconds, job.time_limit_seconds, job.kind)


def similarity_number(job: Job) -> int:
    """Equal for jobs of the same user and name."""
    return hash(_groups_of(job)[0])


def _groups_of(job: Job) -> tuple[Hashable, ...]:
    return _groups(job.kind, job.user, job.project, job.name, job.time_limit_seconds is not None)


def _groups(kind: str, user: str, project: str, name: str, limited: bool) -> tuple[Hashable, ...]:
    """Groups of similar jobs, the most specific first."""
    if kind in INTERNAL_JOB_KINDS:
        return (("kind", kind, limited),)
    return ("name", user, name, limited), ("user", user, limited), ("project", project, limited), ("all", limited)
