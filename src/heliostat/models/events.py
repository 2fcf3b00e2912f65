"""What happened, in order: the log that followers read and history keeps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from heliostat.models.jobs import AttemptId, JobId, TaskPlacement
from heliostat.models.states import JobState


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One move of one job. Ids grow, so a follower can go on from where it was."""

    id: int
    job_id: JobId
    attempt: int
    at: datetime
    kind: str  # submitted, held, released, starting, running, ended, cancel_requested, requeued…
    state: JobState
    detail: str | None = None


class EndCause(StrEnum):
    """Why an attempt ended."""

    EXITED = "exited"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    STOPPED = "stopped"  # because we asked
    LOST = "lost"  # its processes are gone and left no exit code
    PREEMPTED = "preempted"  # sent away by its engine's own queue
    NOT_STARTED = "not_started"  # certain that nothing of it ever ran
    REQUEUED = "requeued"  # its engine's own queue has it again, where it waits as the next attempt
    REFUSED = "refused"  # it can never start like this: no such directory, user, command


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    attempt_id: AttemptId
    at: datetime
    places: tuple[TaskPlacement, ...] = ()  # where each task runs, of an engine that decides that itself
    gpu_type: str | None = None  # of the devices it was given there


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """The attempt is over, its processes are gone and its devices are free."""

    attempt_id: AttemptId
    at: datetime
    cause: EndCause
    exit_code: int | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class TimeLimitChanged:
    """Its time limit was changed where it waits or runs, by others than us."""

    attempt_id: AttemptId
    at: datetime
    time_limit_seconds: int | None  # None: it has no limit any more


Observation = AttemptStarted | AttemptEnded | TimeLimitChanged


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what to what, from where."""

    id: int
    at: datetime
    user: str
    via: str
    address: str
    action: str  # job.cancel, user.create…
    target: str
    detail: Mapping[str, object] = field(default_factory=dict)
