"""What an engine observes of attempts: that they started or ended and why, or have another time limit."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from heliostat.models.jobs import AttemptId, TaskPlacement


class EndCause(StrEnum):
    """Why an attempt ended."""

    EXITED = "exited"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    STOPPED = "stopped"  # on request of Heliostat
    LOST = "lost"  # its processes disappeared without an exit code
    DEVICE_FAILED = "device_failed"  # its GPU had a fault, and then it failed
    PREEMPTED = "preempted"  # by its engine's own queue
    NOT_STARTED = "not_started"  # no process of it ever ran
    REQUEUED = "requeued"  # by its engine's own queue, where it waits as the next attempt
    REFUSED = "refused"  # it can never start: the directory, user or command does not exist


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    attempt_id: AttemptId
    at: datetime
    places: tuple[TaskPlacement, ...] = ()  # of each task, from an engine that chooses the nodes
    gpu_type: str | None = None  # of its devices there


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """The attempt has ended, its processes are gone and its devices are free."""

    attempt_id: AttemptId
    at: datetime
    cause: EndCause
    exit_code: int | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class TimeLimitChanged:
    """Its time limit was changed outside of Heliostat, in the engine's own queue."""

    attempt_id: AttemptId
    at: datetime
    time_limit_seconds: int | None  # None: no limit


Observation = AttemptStarted | AttemptEnded | TimeLimitChanged
