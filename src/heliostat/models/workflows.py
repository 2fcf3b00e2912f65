"""Workflows and sweeps, their jobs, and reported metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

WorkflowId = int
Scalar = str | float | int | bool
WORKFLOW, SWEEP = "workflow", "sweep"


@dataclass(frozen=True, slots=True)
class WorkflowMembership:
    """The role of a job in a workflow or a sweep. It contains no secrets."""

    of: str  # workflow or sweep
    number: int
    key: str  # its name in the workflow


class WorkflowState(StrEnum):
    """Derived from the states of its jobs."""

    PENDING = "pending"  # no job has started yet
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
    """A job of a workflow."""

    workflow_id: WorkflowId
    key: str
    job_id: int
    step: str  # the job in the file of which it is a variant
    position: int  # in the file
    values: Mapping[str, Scalar] = field(default_factory=dict)  # of its matrix
    needs: tuple[str, ...] = ()  # jobs in the file that it needs
    condition: str | None = None
    continue_on_failure: bool = False
    has_deferred_values: bool = False  # its command or variables are filled in when the jobs it needs have ended
    outcome: str | None = None  # skipped or refused
    is_after_failure: bool = False
    previous_job_ids: tuple[int, ...] = ()  # earlier jobs that it replaces


@dataclass(frozen=True, slots=True)
class WorkflowJobCounts:
    """Number of jobs of a workflow by state."""

    waiting: int = 0
    active: int = 0
    completed: int = 0
    failed: int = 0  # including those that could not start
    cancelled: int = 0
    skipped: int = 0
    forgiven: int = 0  # failed with continue_on_failure

    @property
    def total(self) -> int:
        ended = self.completed + self.failed + self.cancelled + self.skipped + self.forgiven
        return self.waiting + self.active + ended

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
    """A metric reported by a job."""

    name: str
    value: float  # the last
    step: int | None = None
    least: float = 0.0
    most: float = 0.0
    count: int = 1


@dataclass(frozen=True, slots=True)
class Sweep:
    """An array over parameters, and the values of each element."""

    id: int
    name: str
    user: str
    project: str
    created_at: datetime
    array_id: int
    first_job: int
    last_job: int
    table: tuple[Mapping[str, Scalar], ...] = ()  # by element
