"""What a replay says about a policy. Each figure is defined in docs/simulation.md."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heliostat.simulation.cluster import Cluster
from heliostat.simulation.fitting import Workload
from heliostat.simulation.replay import Span

THRESHOLD_SECONDS = 10.0  # below which a run time counts as this, lest the shortest jobs decide every mean
_HOUR = 3600.0
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Spread:
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
class Figures:
    jobs: int
    unstarted: int  # which the policy never let start
    wait: Spread
    completion: Spread
    slowdown: Spread
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
class Lives:
    """Of each job that ended, by its place in the workload: when it came, how long it waited, ran and took."""

    places: NDArray[np.intp]
    submitted: Numbers
    waited: Numbers
    ran: Numbers
    took: Numbers


def measure(workload: Workload, cluster: Cluster, table: Numbers) -> Figures:
    """`table` holds every attempt, as `as_table` makes it."""
    lives = lives_of(workload, table)
    slowdowns = bounded_slowdown(lives.took, lives.ran)
    sizes = sizes_of(workload, cluster)
    last_end = float(table[:, 2].max(initial=0.0))
    lost = table[:, 3] * sizes[table[:, 0].astype(np.intp)] if cluster.gpus else np.zeros(0)
    return Figures(
        jobs=len(lives.places),
        unstarted=len(workload.jobs) - len(lives.places),
        wait=spread(lives.waited),
        completion=spread(lives.took),
        slowdown=spread(slowdowns),
        utilisation=utilisation(table, sizes, cluster.size, last_end),
        utilisation_while_arriving=utilisation(table, sizes, cluster.size, workload.submitted_seconds[-1]),
        makespan_seconds=last_end,
        projects=fairness([workload.jobs[place].project for place in lives.places], slowdowns),
        users=fairness([workload.jobs[place].user for place in lives.places], slowdowns),
        preemptions=len(table) - len(lives.places),
        wasted_gpu_hours=float(lost.sum()) / _HOUR,
    )


def lives_of(workload: Workload, table: Numbers) -> Lives:
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
    return Lives(places, submitted, np.maximum(took - held[places], 0.0), ran, took)


def bounded_slowdown(took: Numbers, ran: Numbers) -> Numbers:
    """How many times longer than its run a job took from submission to end; at least 1."""
    return np.maximum(1.0, took / np.maximum(ran, THRESHOLD_SECONDS))


def spread(values: Numbers) -> Spread:
    if not len(values):
        return Spread(0.0, 0.0, 0.0, 0.0, 0.0)
    p50, p90, p99 = np.percentile(values, [50, 90, 99])
    return Spread(float(values.mean()), float(p50), float(p90), float(p99), float(values.max()))


def fairness(names: Sequence[str], slowdowns: Numbers) -> Fairness:
    """Jain's index of the groups' means: the square of their sum over n times the sum of their squares."""
    if not names:
        return Fairness(1.0, "", 0.0, {})
    groups, which = np.unique(np.asarray(names), return_inverse=True)
    means = np.bincount(which, slowdowns) / np.bincount(which)
    worst = int(means.argmax())
    jain = float(means.sum() ** 2 / (len(means) * (means**2).sum()))
    by_name = {str(name): float(mean) for name, mean in zip(groups, means, strict=True)}
    return Fairness(jain, str(groups[worst]), float(means[worst]), by_name)


def utilisation(table: Numbers, sizes: Numbers, capacity: int, until: float) -> float:
    """The part of all GPU-seconds (or, without GPUs, cpu-seconds) from 0 until then that jobs held."""
    if until <= 0:
        return 0.0
    seconds = np.minimum(table[:, 2], until) - np.minimum(table[:, 1], until)
    return float((seconds * sizes[table[:, 0].astype(np.intp)]).sum() / (capacity * until))


def sizes_of(workload: Workload, cluster: Cluster) -> Numbers:
    """What each job holds of that in which the cluster's use is measured."""
    name = cluster.unit
    held = [getattr(job.resources, name) * job.placement.tasks for job in workload.jobs]
    return np.asarray(held, dtype=np.float64)


def as_table(spans: Sequence[Span]) -> Numbers:
    """Columns: job, started, ended, lost."""
    return np.asarray(spans, dtype=np.float64).reshape(-1, 4)
