"""What a decision is made from, and the decision. Plain frozen data: no clock, no database, no network."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from heliostat.models import AttemptId, Job, JobId, Node


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a running attempt holds on its node."""

    attempt_id: AttemptId
    job: Job
    node: str
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at one moment; pending jobs in the order of the queue (`plan.queue_key`)."""

    nodes: tuple[Node, ...]
    allocations: tuple[Allocation, ...]
    pending: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Start:
    job: Job
    node: str
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start now, and why the first of the others wait (the rest wait for those)."""

    starts: tuple[Start, ...] = ()
    reasons: Mapping[JobId, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policy:
    """How to choose. Grows with the scheduler."""

    reasons: int = 1000  # for how many waiting jobs a reason is worked out in one plan
