"""Workflows and sweeps: jobs that belong together, what they hand on, and what they report."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

WorkflowId = int
Scalar = str | float | int | bool
WORKFLOW, SWEEP = "workflow", "sweep"


@dataclass(frozen=True, slots=True)
class WorkflowMembership:
    """What a job is of something larger. Engines and the controller read it; it holds no secret."""

    of: str  # workflow or sweep
    number: int
    key: str  # its name there


class WorkflowState(StrEnum):
    """Follows from the states of its jobs."""

    PENDING = "pending"  # none has started yet
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Workflow:
    id: WorkflowId
    name: str
    user: str
    project: str
    created_at: datetime
    params: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkflowJob:
    """A job as its workflow knows it."""

    workflow_id: WorkflowId
    key: str
    job_id: int
    step: str  # the job of the file it is a variant of
    position: int  # in the order of the file
    values: Mapping[str, Scalar] = field(default_factory=dict)  # of its matrix
    needs: tuple[str, ...] = ()  # jobs of the file it needs
    condition: str | None = None
    continue_on_failure: bool = False  # continue_on_failure
    has_deferred_values: bool = False  # its command or variables are filled in when those it needs are over
    outcome: str | None = None  # skipped or refused
    is_after_failure: bool = False
    previous_job_ids: tuple[int, ...] = ()  # jobs that were tried in its place


@dataclass(frozen=True, slots=True)
class WorkflowJobCounts:
    """How many jobs of a workflow are in which state."""

    waiting: int = 0
    active: int = 0
    completed: int = 0
    failed: int = 0  # also those that could not be started
    cancelled: int = 0
    skipped: int = 0
    forgiven: int = 0  # failed, which was no failure

    @property
    def total(self) -> int:
        over = self.completed + self.failed + self.cancelled + self.skipped + self.forgiven
        return self.waiting + self.active + over

    @property
    def state(self) -> WorkflowState:
        if self.active or (self.waiting and self.waiting < self.total):
            return WorkflowState.RUNNING
        if self.waiting:
            return WorkflowState.PENDING
        if self.failed:
            return WorkflowState.FAILED
        return WorkflowState.CANCELLED if self.cancelled else WorkflowState.COMPLETED


@dataclass(frozen=True, slots=True)
class Metric:
    """What a job reported under one name."""

    name: str
    value: float  # the last
    step: int | None = None
    least: float = 0.0
    most: float = 0.0
    count: int = 1


@dataclass(frozen=True, slots=True)
class Sweep:
    """An array over parameters, and which element has which values."""

    id: int
    name: str
    user: str
    project: str
    created_at: datetime
    array_id: int
    first_job: int
    last_job: int
    table: tuple[Mapping[str, Scalar], ...] = ()  # by element
