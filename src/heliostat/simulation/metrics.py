"""What a replay says about a policy. Each figure is defined in docs/simulation.md."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heliostat.simulation.cluster import ReplayCluster
from heliostat.simulation.replay import AttemptSpan
from heliostat.simulation.workload import Workload

SLOWDOWN_THRESHOLD_SECONDS = (
    10.0  # below which a run time counts as this, lest the shortest jobs decide every mean
)
_HOUR = 3600.0
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Of one value per job."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Fairness:
    """Over the mean bounded slowdowns of projects, or of users."""

    jain: float  # 1: alike for all; 1/n: one of n bears everything
    worst: str
    worst_slowdown: float
    slowdowns: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ReplayMetrics:
    jobs: int
    unstarted: int  # which the policy never let start
    wait: Distribution
    completion: Distribution
    slowdown: Distribution
    utilisation: float  # from the first submission to the last end
    utilisation_while_arriving: float  # from the first submission to the last
    makespan_seconds: float
    projects: Fairness
    users: Fairness
    preemptions: int
    wasted_gpu_hours: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class JobTimes:
    """Of each job that ended, by its place in the workload: when it came, how long it waited, ran and took."""

    job_indexes: NDArray[np.intp]
    submitted_seconds: FloatArray
    wait_seconds: FloatArray
    run_seconds: FloatArray
    turnaround_seconds: FloatArray


def compute_metrics(workload: Workload, cluster: ReplayCluster, table: FloatArray) -> ReplayMetrics:
    """`table` holds every attempt, as `as_table` makes it."""
    lives = compute_job_times(workload, table)
    slowdowns = bounded_slowdown(lives.turnaround_seconds, lives.run_seconds)
    sizes = compute_job_sizes(workload, cluster)
    last_end = float(table[:, 2].max(initial=0.0))
    lost = table[:, 3] * sizes[table[:, 0].astype(np.intp)] if cluster.gpus else np.zeros(0)
    return ReplayMetrics(
        jobs=len(lives.job_indexes),
        unstarted=len(workload.jobs) - len(lives.job_indexes),
        wait=compute_distribution(lives.wait_seconds),
        completion=compute_distribution(lives.turnaround_seconds),
        slowdown=compute_distribution(slowdowns),
        utilisation=compute_utilisation(table, sizes, cluster.size, last_end),
        utilisation_while_arriving=compute_utilisation(table, sizes, cluster.size, workload.submitted_seconds[-1]),
        makespan_seconds=last_end,
        projects=compute_fairness([workload.jobs[place].project for place in lives.job_indexes], slowdowns),
        users=compute_fairness([workload.jobs[place].user for place in lives.job_indexes], slowdowns),
        preemptions=len(table) - len(lives.job_indexes),
        wasted_gpu_hours=float(lost.sum()) / _HOUR,
    )


def compute_job_times(workload: Workload, table: FloatArray) -> JobTimes:
    """The wait is all the time spent in the queue, also after having been sent back to it."""
    which = table[:, 0].astype(np.intp)
    count = len(workload.jobs)
    held = np.bincount(which, table[:, 2] - table[:, 1], count)
    ended = np.zeros(count)
    np.maximum.at(ended, which, table[:, 2])
    started = np.bincount(which, minlength=count) > 0
    places = np.flatnonzero(started)
    submitted = np.asarray(workload.submitted_seconds)[places]
    ran = np.asarray(workload.run_seconds)[places]
    took = ended[places] - submitted
    return JobTimes(places, submitted, np.maximum(took - held[places], 0.0), ran, took)


def bounded_slowdown(took: FloatArray, ran: FloatArray) -> FloatArray:
    """How many times longer than its run a job took from submission to end; at least 1."""
    return np.maximum(1.0, took / np.maximum(ran, SLOWDOWN_THRESHOLD_SECONDS))


def compute_distribution(values: FloatArray) -> Distribution:
    if not len(values):
        return Distribution(0.0, 0.0, 0.0, 0.0, 0.0)
    p50, p90, p99 = np.percentile(values, [50, 90, 99])
    return Distribution(float(values.mean()), float(p50), float(p90), float(p99), float(values.max()))


def compute_fairness(names: Sequence[str], slowdowns: FloatArray) -> Fairness:
    """Jain's index of the groups' means: the square of their sum over n times the sum of their squares."""
    if not names:
        return Fairness(1.0, "", 0.0, {})
    groups, which = np.unique(np.asarray(names), return_inverse=True)
    means = np.bincount(which, slowdowns) / np.bincount(which)
    worst = int(means.argmax())
    jain = float(means.sum() ** 2 / (len(means) * (means**2).sum()))
    by_name = {str(name): float(mean) for name, mean in zip(groups, means, strict=True)}
    return Fairness(jain, str(groups[worst]), float(means[worst]), by_name)


def compute_utilisation(table: FloatArray, sizes: FloatArray, capacity: int, until: float) -> float:
    """The part of all GPU-seconds (or, without GPUs, cpu-seconds) from 0 until then that jobs held."""
    if until <= 0:
        return 0.0
    seconds = np.minimum(table[:, 2], until) - np.minimum(table[:, 1], until)
    return float((seconds * sizes[table[:, 0].astype(np.intp)]).sum() / (capacity * until))


def compute_job_sizes(workload: Workload, cluster: ReplayCluster) -> FloatArray:
    """What each job holds of that in which the cluster's use is measured."""
    name = cluster.usage_unit
    held = [getattr(job.resources, name) * job.placement.tasks for job in workload.jobs]
    return np.asarray(held, dtype=np.float64)


def to_attempt_table(spans: Sequence[AttemptSpan]) -> FloatArray:
    """Columns: job, started, ended, lost."""
    return np.asarray(spans, dtype=np.float64).reshape(-1, 4)
