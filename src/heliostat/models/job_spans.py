"""Waits and runs of jobs in the past."""

from typing import NamedTuple

from heliostat.models.jobs import JobId


class JobSpan(NamedTuple):
    """A run of a job with the wait before it, or a wait without a run. Times are in seconds since 1970."""

    job_id: JobId
    project: str
    user: str
    priority_class: str
    gpus: float  # of all its tasks, like cpus and memory
    cpus: int
    memory_mib: int
    gpu_type: str | None  # of its devices; if unknown, as requested
    array_id: int | None
    array_limit: int | None
    waits_for_reservation: bool  # it may run only during a reservation
    submitted_at: float
    waited_seconds: float  # of the job, in the queue, until the end of its last wait
    started_at: float | None  # None: it waits, or was cancelled while it waited
    ended_at: float | None  # None: it still waits or runs
