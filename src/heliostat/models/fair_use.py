"""Steps against GPUs that a job holds and does not use, and the state of a job on this ladder."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from heliostat.models.jobs import JobId

IDLE_EVENT, IDLE_MANAGER_EVENT = "idle", "idle_manager"
"""Event kinds: sent to the owner of a job; sent to the owner and to the managers of the project."""


class IdleStep(StrEnum):
    """In this order."""

    NOTE = "note"  # on the page of the job
    MESSAGE = "message"  # to its owner
    MANAGER = "manager"  # to its owner and to the managers of its project
    PREEMPT = "preempt"  # back to the queue, if the job is preemptible
    END = "end"


@dataclass(frozen=True, slots=True)
class IdleState:
    """A job on the ladder. A new attempt, and any use of the GPUs, begins at the bottom; answers are counted for
    the whole job."""

    job_id: JobId
    attempt: int
    step: IdleStep | None = None  # the last step taken; None: none
    step_at: datetime | None = None
    idle_since: datetime | None = None  # when the first step was taken
    kept_until: datetime | None = None  # by an answer
    answers: int = 0
    returned_gpu_hours: float = 0.0  # given back early by its owner
