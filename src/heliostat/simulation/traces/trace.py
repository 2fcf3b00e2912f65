"""A job as a trace tells it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

LIMIT_STEP_SECONDS = 900  # people declare limits in quarters of an hour
MAX_TIMESTAMP_SECONDS = 1e11  # since 1970; what is above was not in seconds
MAX_DURATION_SECONDS = 1e9


@dataclass(frozen=True, slots=True)
class TraceJob:
    """What one job asked for and how long it really ran. None: the trace does not say."""

    submitted_at: float  # seconds since 1970, or since any other moment
    run_seconds: float
    limit_seconds: float | None = None
    gpus: float = 0  # of one task, as are cpus and memory
    cpus: int | None = None
    memory_mib: int | None = None
    gpu_type: str | None = None
    user: str = "user"
    project: str = "default"
    department: str = "default"
    priority_class: str = "normal"
    preemptible: bool = False
    tasks: int = 1


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in the order they were submitted, and why lines of the file gave none."""

    name: str
    jobs: tuple[TraceJob, ...]
    skipped: Mapping[str, int] = field(default_factory=dict)


class BadValue(Exception):
    """A column of a line that cannot be used."""

    def __init__(self, column: str, what: str) -> None:
        super().__init__(f"{column}: {what}")
        self.column, self.problem = column, what


def with_time_limit(job: TraceJob, factor: float | None) -> TraceJob:
    """A job that declared no limit gets `factor` times its run time, rounded up to 15 minutes.

    A declared limit below the run time is raised to it: replayed jobs run as long as they really ran.
    """
    if job.limit_seconds is not None:
        return job if job.limit_seconds >= job.run_seconds else replace(job, limit_seconds=job.run_seconds)
    if factor is None:
        return job
    steps = max(1, math.ceil(job.run_seconds * factor / LIMIT_STEP_SECONDS))
    return replace(job, limit_seconds=steps * LIMIT_STEP_SECONDS)


def validate_trace_job(job: TraceJob) -> TraceJob:
    """The job, if its figures are within reason."""
    if not 0 <= job.submitted_at < MAX_TIMESTAMP_SECONDS:
        raise BadValue("submitted_at", f"{job.submitted_at:g} is not in seconds; divide milliseconds by 1000")
    if not 0 <= job.run_seconds < MAX_DURATION_SECONDS:
        raise BadValue("run_seconds", f"{job.run_seconds:g} is not a number of seconds from 0 up")
    if job.limit_seconds is not None and not 0 < job.limit_seconds < MAX_DURATION_SECONDS:
        raise BadValue("limit_seconds", f"{job.limit_seconds:g} is not a number of seconds above 0")
    if not 0 <= job.gpus < 1e6:
        raise BadValue("gpus", f"{job.gpus:g} is not a number of GPUs")
    if not 1 <= job.tasks < 1e6:
        raise BadValue("tasks", f"{job.tasks} is not a number of tasks from 1 up")
    for name, value in (("cpus", job.cpus), ("memory_mib", job.memory_mib)):
        if value is not None and not 0 <= value < 1e12:
            raise BadValue(name, f"{value} is not an amount")
    return job
