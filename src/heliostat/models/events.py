"""Job events."""

from dataclasses import dataclass
from datetime import datetime

from heliostat.models.jobs import JobId
from heliostat.models.states import JobState


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One event of one job. Ids increase, so a reader can continue after the last id it has read."""

    id: int
    job_id: JobId
    attempt: int
    at: datetime
    kind: str  # submitted, held, released, starting, running, ended, cancel_requested, requeued…
    state: JobState
    detail: str | None = None
