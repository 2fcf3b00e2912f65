"""Traces and their jobs, with validation and default time limits."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

LIMIT_STEP_SECONDS = 900  # users declare limits in steps of 15 minutes
MAX_TIMESTAMP_SECONDS = 1e11  # since 1970; larger values are not seconds
MAX_DURATION_SECONDS = 1e9


@dataclass(frozen=True, slots=True)
class TraceJob:
    """Request and actual run time of one job. None: not in the trace."""

    submitted_at: float  # seconds since 1970 or any other time
    run_seconds: float
    limit_seconds: float | None = None
    gpus: float = 0  # per task, like cpus and memory
    cpus: int | None = None
    memory_mib: int | None = None
    gpu_type: str | None = None
    user: str = "user"
    project: str = "default"
    department: str = "default"
    priority_class: str = "normal"
    preemptible: bool = False
    tasks: int = 1
    name: str | None = None  # jobs of the same user and name are similar
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in the order of submission, and the numbers of skipped lines by reason."""

    name: str
    jobs: tuple[TraceJob, ...]
    skipped: Mapping[str, int] = field(default_factory=dict)


class BadValue(Exception):
    """A value in a trace that cannot be used. The whole line if `column` is empty."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"{column}: {problem}" if column else problem)
        self.column, self.problem = column, problem


def with_time_limit(job: TraceJob, factor: float | None) -> TraceJob:
    """A job without a limit gets `factor` times its run time, rounded up to 15 minutes.

    A limit below the run time is raised to it, because replayed jobs run as long as recorded.
    """
    if job.limit_seconds is not None:
        return job if job.limit_seconds >= job.run_seconds else replace(job, limit_seconds=job.run_seconds)
    if factor is None:
        return job
    limit = min(job.run_seconds * factor, MAX_DURATION_SECONDS)
    steps = max(1, math.ceil(limit / LIMIT_STEP_SECONDS))
    return replace(job, limit_seconds=steps * LIMIT_STEP_SECONDS)


def validate_trace_job(job: TraceJob) -> TraceJob:
    """The job, if its values are plausible; else raises BadValue."""
    if not 0 <= job.submitted_at < MAX_TIMESTAMP_SECONDS:
        raise BadValue("submitted_at", f"{job.submitted_at:g} is not in seconds; divide milliseconds by 1000")
    if not 0 <= job.run_seconds < MAX_DURATION_SECONDS:
        raise BadValue("run_seconds", f"{job.run_seconds:g} is not a number of seconds of at least 0")
    if job.limit_seconds is not None and not 0 < job.limit_seconds < MAX_DURATION_SECONDS:
        raise BadValue("limit_seconds", f"{job.limit_seconds:g} is not a number of seconds above 0")
    if not 0 <= job.gpus < 1e6:
        raise BadValue("gpus", f"{job.gpus:g} is not a number of GPUs")
    if not 1 <= job.tasks < 1e6:
        raise BadValue("tasks", f"{job.tasks} is not a number of tasks of at least 1")
    for name, value in (("cpus", job.cpus), ("memory_mib", job.memory_mib)):
        if value is not None and not 0 <= value < 1e12:
            raise BadValue(name, f"{value} is not an amount")
    return job
