"""Traces made up from a seed: a working week of a few projects, with bursts, short tries and long trainings."""

import random
from dataclasses import dataclass, replace

from heliostat.simulation.traces.trace import Trace, TraceJob, with_time_limit

_DAY = 86400.0
_GPUS = ((1, 70), (2, 12), (4, 10), (8, 7), (16, 1))
_PROJECTS = (
    ("imaging", "radiology"),
    ("segmentation", "radiology"),
    ("speech", "languages"),
    ("robots", "physics"),
)
_RUN_SECONDS = ((300, 0.8), (3600, 1.0), (6 * 3600, 0.9))  # median and spread: a try, an experiment, a training
_MEAN_GPU_SECONDS = 20_000.0  # of one job; measured, with the figures above


@dataclass(frozen=True, slots=True)
class SyntheticTraceSpec:
    jobs: int
    seed: int = 0
    gpus: int = 64  # of the cluster it is meant for
    load: float = 0.9  # of that cluster


def generate_trace(recipe: SyntheticTraceSpec) -> Trace:
    """The same trace for the same recipe, on every machine."""
    dice = random.Random(recipe.seed)
    at = 0.0
    jobs: list[TraceJob] = []
    gap = _MEAN_GPU_SECONDS / (recipe.gpus * recipe.load)
    while len(jobs) < recipe.jobs:
        jobs += _burst(dice, at, min(recipe.jobs - len(jobs), _burst_size(dice)), recipe.gpus)
        at += dice.expovariate(1 / gap) * _burst_size(dice) * _slowness(at)
    return Trace(f"made up, seed {recipe.seed}", _stretched(jobs, recipe))


def _burst_size(dice: random.Random) -> int:
    return 1 if dice.random() < 0.8 else dice.randint(4, 30)


def _stretched(jobs: list[TraceJob], recipe: SyntheticTraceSpec) -> tuple[TraceJob, ...]:
    """Chance makes a load of its own; time is stretched until it is the one asked for."""
    asked = sum(job.gpus * job.run_seconds for job in jobs)
    factor = asked / (recipe.gpus * recipe.load * jobs[-1].submitted_at) if jobs[-1].submitted_at else 1.0
    return tuple(replace(job, submitted_at=round(job.submitted_at * factor, 3)) for job in jobs)


def _burst(dice: random.Random, at: float, count: int, cluster_gpus: int) -> list[TraceJob]:
    """One person submits some jobs alike."""
    project, department = dice.choices(_PROJECTS, (8, 4, 2, 1))[0]
    user = f"{project}-{dice.randint(1, 6)}"
    sizes, weights = zip(*_GPUS, strict=True)
    gpus = min(dice.choices(sizes, weights)[0], cluster_gpus)
    median, spread = dice.choices(_RUN_SECONDS, (5, 3, 2))[0]
    urgent = "interactive" if median == 300 and count == 1 and dice.random() < 0.2 else "normal"
    jobs: list[TraceJob] = []
    for _ in range(count):
        run_seconds = round(min(median * dice.lognormvariate(0, spread), 4 * _DAY), 1)
        made = TraceJob(at, run_seconds, None, gpus, user=user, project=project, department=department)
        jobs.append(_declared(made, dice, urgent))
    return jobs


def _declared(job: TraceJob, dice: random.Random, priority_class: str) -> TraceJob:
    return replace(with_time_limit(job, dice.choice((1.2, 2.0, 4.0))), priority_class=priority_class)


def _slowness(at: float) -> float:
    """Nights are quiet."""
    hour = at % _DAY / 3600
    return 0.6 if 9 <= hour < 19 else 1.8
