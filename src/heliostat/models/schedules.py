"""Schedules that submit jobs repeatedly, and their firings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from heliostat.models.jobs import JobId, JobRequest

ScheduleId = int


class ScheduleState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    FINISHED = "finished"  # there are no further times


class OverlapPolicy(StrEnum):
    """What happens if a schedule is due while the job of an earlier firing is unfinished."""

    SKIP = "skip"  # no new job
    QUEUE = "queue"  # the new job starts after the earlier one
    REPLACE = "replace"  # the earlier job is cancelled, the new one starts after it
    ALLOW = "allow"  # both run


class CatchUpMode(StrEnum):
    """Which missed firings are caught up after the server was down."""

    NONE = "none"
    LAST = "last"  # only the newest
    ALL = "all"  # all within `epsilon_seconds`


class FiringState(StrEnum):
    RUNNING = "running"  # its job waits or runs
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"  # the job of an earlier firing was unfinished
    MISSED = "missed"  # the server was down when it was due
    REFUSED = "refused"  # its job was not accepted


FIRING_STATES_WITHOUT_JOB = frozenset({FiringState.SKIPPED, FiringState.MISSED, FiringState.REFUSED})


@dataclass(frozen=True, slots=True)
class Schedule:
    id: ScheduleId
    name: str  # unique per owner
    user: str  # owner of its jobs
    project: str
    state: ScheduleState
    timing: str | None  # a repeating interval or a cron line; None: it fires when its parents have succeeded
    zone: str
    request: JobRequest
    created_at: datetime
    overlap: OverlapPolicy = OverlapPolicy.SKIP
    catch_up: CatchUpMode = CatchUpMode.LAST
    epsilon_seconds: int | None = None  # firings later than this are not caught up
    retries: int = 0  # how often a failed job is submitted again
    ends_after: int | None = None  # number of firings
    soft_error: bool = False  # its children also fire after a failure
    next_at: datetime | None = None
    version: int = 1  # of the request
    handled_at: datetime | None = None  # when it was last processed because it was due
    last_due_at: datetime | None = None
    fired: int = 0
    succeeded: int = 0
    failed: int = 0
    failed_in_a_row: int = 0
    succeeded_at: datetime | None = None
    failed_at: datetime | None = None
    parents: tuple[ScheduleId, ...] = ()
    document: Mapping[str, object] = field(default_factory=dict)  # the original document, shown unchanged


@dataclass(frozen=True, slots=True)
class Firing:
    """One due time of a schedule."""

    id: int
    schedule_id: ScheduleId
    due_at: datetime
    at: datetime  # when it was processed
    state: FiringState
    reason: str | None = None
    job_id: JobId | None = None  # of an array: the first
    last_job_id: JobId | None = None
    tries: int = 1
    count: int = 1  # of missed firings: their number from `due_at` on
    by_hand: bool = False
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ScheduleOrigin:
    """The schedule that submitted a job."""

    schedule_id: ScheduleId
    name: str
    due_at: datetime


def is_chronos_job(content: object) -> bool:
    """Whether this is a job of Chronos rather than a Heliostat schedule."""
    if not isinstance(content, dict) or not isinstance(content.get("command"), str):
        return False
    return "name" in content and ("schedule" in content or "parents" in content)
