"""What submits a job again and again, and each time it did."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from heliostat.models.jobs import JobId, JobRequest

ScheduleId = int


class ScheduleState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    FINISHED = "finished"  # no time is left


class OverlapPolicy(StrEnum):
    """What happens when it is due while the job of an earlier firing is not over."""

    SKIP = "skip"  # nothing
    QUEUE = "queue"  # the new job starts after the earlier one
    REPLACE = "replace"  # the earlier one is cancelled, the new one starts after it
    ALLOW = "allow"  # both run


class CatchUpMode(StrEnum):
    """What is made up for after nobody was there to fire it."""

    NONE = "none"
    LAST = "last"  # the newest
    ALL = "all"  # as far back as `epsilon_seconds`


class FiringState(StrEnum):
    RUNNING = "running"  # its job waits or runs
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"  # an earlier one was not over
    MISSED = "missed"  # nobody was there when it was due
    REFUSED = "refused"  # its job was not taken


FIRING_STATES_WITHOUT_JOB = frozenset({FiringState.SKIPPED, FiringState.MISSED, FiringState.REFUSED})
"""There is no job."""


@dataclass(frozen=True, slots=True)
class Schedule:
    id: ScheduleId
    name: str  # unique among those of its owner
    user: str  # whose jobs these are
    project: str
    state: ScheduleState
    timing: str | None  # a repeating interval or a cron line; None: it fires when its parents have succeeded
    zone: str
    request: JobRequest
    created_at: datetime
    overlap: OverlapPolicy = OverlapPolicy.SKIP
    catch_up: CatchUpMode = CatchUpMode.LAST
    epsilon_seconds: int | None = None  # what is later than this is not made up for
    retries: int = 0  # how often a job that failed is submitted again
    ends_after: int | None = None  # so many firings
    soft_error: bool = False  # its children fire also after it has failed
    next_at: datetime | None = None
    version: int = 1  # of what was asked for
    handled_at: datetime | None = None  # when it was last looked at because it was due
    last_due_at: datetime | None = None
    fired: int = 0
    succeeded: int = 0
    failed: int = 0
    failed_in_a_row: int = 0
    succeeded_at: datetime | None = None
    failed_at: datetime | None = None
    parents: tuple[ScheduleId, ...] = ()
    document: Mapping[str, object] = field(default_factory=dict)  # what it came from, to be shown as it came


@dataclass(frozen=True, slots=True)
class Firing:
    """One time it was due."""

    id: int
    schedule_id: ScheduleId
    due_at: datetime
    at: datetime  # when it was handled
    state: FiringState
    reason: str | None = None
    job_id: JobId | None = None  # of an array the first
    last_job_id: JobId | None = None
    tries: int = 1
    count: int = 1  # of those missed, how many there were from `due_at` on
    by_hand: bool = False
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ScheduleOrigin:
    """Where a job comes from."""

    schedule_id: ScheduleId
    name: str
    due_at: datetime


def is_chronos_job(content: object) -> bool:
    """Whether this looks like a job of Chronos rather than one of ours."""
    if not isinstance(content, dict) or not isinstance(content.get("command"), str):
        return False
    return "name" in content and ("schedule" in content or "parents" in content)
