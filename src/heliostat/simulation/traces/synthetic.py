"""Synthetic traces from a seed: a few projects with bursts, short tests and long training jobs."""

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
_RUN_SECONDS = ((300, 0.8), (3600, 1.0), (6 * 3600, 0.9))  # median and spread: test, experiment, training
_MEAN_GPU_SECONDS = 20_000.0  # per job, measured with the values above


@dataclass(frozen=True, slots=True)
class SyntheticTraceSpec:
    jobs: int
    seed: int = 0
    gpus: int = 64  # of the cluster it is meant for
    load: float = 0.9  # of that cluster


def generate_trace(spec: SyntheticTraceSpec) -> Trace:
    """Deterministic: the same spec gives the same trace."""
    generator = random.Random(spec.seed)
    at = 0.0
    jobs: list[TraceJob] = []
    gap = _MEAN_GPU_SECONDS / (spec.gpus * spec.load)
    while len(jobs) < spec.jobs:
        jobs += _burst(generator, at, min(spec.jobs - len(jobs), _burst_size(generator)), spec.gpus)
        at += generator.expovariate(1 / gap) * _burst_size(generator) * _gap_factor(at)
    return Trace(f"synthetic, seed {spec.seed}", _scale_to_load(jobs, spec))


def _burst_size(generator: random.Random) -> int:
    return 1 if generator.random() < 0.8 else generator.randint(4, 30)


def _scale_to_load(jobs: list[TraceJob], spec: SyntheticTraceSpec) -> tuple[TraceJob, ...]:
    """Scale the submission times so that the random jobs have exactly the requested load."""
    requested = sum(job.gpus * job.run_seconds for job in jobs)
    factor = requested / (spec.gpus * spec.load * jobs[-1].submitted_at) if jobs[-1].submitted_at else 1.0
    return tuple(replace(job, submitted_at=round(job.submitted_at * factor, 3)) for job in jobs)


def _burst(generator: random.Random, at: float, count: int, cluster_gpus: int) -> list[TraceJob]:
    """Similar jobs that one user submits together."""
    project, department = generator.choices(_PROJECTS, (8, 4, 2, 1))[0]
    user = f"{project}-{generator.randint(1, 6)}"
    sizes, weights = zip(*_GPUS, strict=True)
    gpus = min(generator.choices(sizes, weights)[0], cluster_gpus)
    median, spread = generator.choices(_RUN_SECONDS, (5, 3, 2))[0]
    urgent = "interactive" if median == 300 and count == 1 and generator.random() < 0.2 else "normal"
    jobs: list[TraceJob] = []
    for _ in range(count):
        run_seconds = round(min(median * generator.lognormvariate(0, spread), 4 * _DAY), 1)
        job = TraceJob(at, run_seconds, None, gpus, user=user, project=project, department=department)
        jobs.append(_with_limit_and_class(job, generator, urgent))
    return jobs


def _with_limit_and_class(job: TraceJob, generator: random.Random, priority_class: str) -> TraceJob:
    return replace(with_time_limit(job, generator.choice((1.2, 2.0, 4.0))), priority_class=priority_class)


def _gap_factor(at: float) -> float:
    """Factor on the time between submissions: fewer at night."""
    hour = at % _DAY / 3600
    return 0.6 if 9 <= hour < 19 else 1.8
