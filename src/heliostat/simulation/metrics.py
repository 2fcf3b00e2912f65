"""Metrics of a replay: waits, slowdowns, utilisation, fairness. Defined in docs/simulation.md."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heliostat.simulation.cluster import ReplayCluster
from heliostat.simulation.replay import AttemptSpan
from heliostat.simulation.workload import Workload

SLOWDOWN_THRESHOLD_SECONDS = 10.0  # shorter run times count as this, so that they do not dominate the mean
_HOUR = 3600.0
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Statistics of one value per job."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Fairness:
    """Fairness of the mean bounded slowdowns of projects, or of users."""

    jain: float  # Jain's index. 1: equal for all; 1/n: one of n has all the slowdown
    worst: str
    worst_slowdown: float
    slowdowns: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ReplayMetrics:
    jobs: int
    unstarted: int  # never started under this policy
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
    """Parallel arrays over the jobs that ended."""

    job_indexes: NDArray[np.intp]
    submitted_seconds: FloatArray
    wait_seconds: FloatArray
    run_seconds: FloatArray
    turnaround_seconds: FloatArray


def compute_metrics(workload: Workload, cluster: ReplayCluster, table: FloatArray) -> ReplayMetrics:
    """`table` holds every attempt: see `to_attempt_table`."""
    times = compute_job_times(workload, table)
    slowdowns = bounded_slowdown(times.turnaround_seconds, times.run_seconds)
    sizes = compute_job_sizes(workload, cluster)
    last_end = float(table[:, 2].max(initial=0.0))
    lost = table[:, 3] * sizes[table[:, 0].astype(np.intp)] if cluster.gpus else np.zeros(0)
    return ReplayMetrics(
        jobs=len(times.job_indexes),
        unstarted=len(workload.jobs) - len(times.job_indexes),
        wait=compute_distribution(times.wait_seconds),
        completion=compute_distribution(times.turnaround_seconds),
        slowdown=compute_distribution(slowdowns),
        utilisation=compute_utilisation(table, sizes, cluster.size, last_end),
        utilisation_while_arriving=compute_utilisation(table, sizes, cluster.size, workload.submitted_seconds[-1]),
        makespan_seconds=last_end,
        projects=compute_fairness([workload.jobs[index].project for index in times.job_indexes], slowdowns),
        users=compute_fairness([workload.jobs[index].user for index in times.job_indexes], slowdowns),
        preemptions=len(table) - len(times.job_indexes),
        wasted_gpu_hours=float(lost.sum()) / _HOUR,
    )


def compute_job_times(workload: Workload, table: FloatArray) -> JobTimes:
    """The wait is the total time in the queue, with waits after a preemption."""
    job_indexes = table[:, 0].astype(np.intp)
    count = len(workload.jobs)
    held_seconds = np.bincount(job_indexes, table[:, 2] - table[:, 1], count)
    ended = np.zeros(count)
    np.maximum.at(ended, job_indexes, table[:, 2])
    started = np.bincount(job_indexes, minlength=count) > 0
    indexes = np.flatnonzero(started)
    submitted = np.asarray(workload.submitted_seconds)[indexes]
    run_seconds = np.asarray(workload.run_seconds)[indexes]
    turnaround = ended[indexes] - submitted
    return JobTimes(
        indexes, submitted, np.maximum(turnaround - held_seconds[indexes], 0.0), run_seconds, turnaround
    )


def bounded_slowdown(turnaround: FloatArray, run_seconds: FloatArray) -> FloatArray:
    """Time from submission to end divided by the run time; at least 1."""
    return np.maximum(1.0, turnaround / np.maximum(run_seconds, SLOWDOWN_THRESHOLD_SECONDS))


def compute_distribution(values: FloatArray) -> Distribution:
    if not len(values):
        return Distribution(0.0, 0.0, 0.0, 0.0, 0.0)
    p50, p90, p99 = np.percentile(values, [50, 90, 99])
    return Distribution(float(values.mean()), float(p50), float(p90), float(p99), float(values.max()))


def compute_fairness(names: Sequence[str], slowdowns: FloatArray) -> Fairness:
    """Jain's index of the means: the square of their sum, divided by n times the sum of their squares."""
    if not names:
        return Fairness(1.0, "", 0.0, {})
    groups, group_indexes = np.unique(np.asarray(names), return_inverse=True)
    means = np.bincount(group_indexes, slowdowns) / np.bincount(group_indexes)
    worst = int(means.argmax())
    jain = float(means.sum() ** 2 / (len(means) * (means**2).sum()))
    by_name = {str(name): float(mean) for name, mean in zip(groups, means, strict=True)}
    return Fairness(jain, str(groups[worst]), float(means[worst]), by_name)


def compute_utilisation(table: FloatArray, sizes: FloatArray, capacity: float, until: float) -> float:
    """Fraction of all GPU-seconds (without GPUs, cpu-seconds) from 0 to `until` that was allocated to jobs."""
    if until <= 0:
        return 0.0
    seconds = np.minimum(table[:, 2], until) - np.minimum(table[:, 1], until)
    return float((seconds * sizes[table[:, 0].astype(np.intp)]).sum() / (capacity * until))


def compute_job_sizes(workload: Workload, cluster: ReplayCluster) -> FloatArray:
    """GPUs (without GPUs in the cluster, cpus) of each job."""
    return np.asarray([cluster.size_of(job) for job in workload.jobs], dtype=np.float64)


def to_attempt_table(spans: Sequence[AttemptSpan]) -> FloatArray:
    """Columns: index of the job, start, end, lost seconds."""
    return np.asarray([span[:4] for span in spans], dtype=np.float64).reshape(-1, 4)
