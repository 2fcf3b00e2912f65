"""Frozen records and states; the bottom layer, which imports nothing else of ours."""

from heliostat.models.events import AuditEntry, Cause, Ended, JobEvent, Observation, Started
from heliostat.models.jobs import (
    ArrayRange,
    Attempt,
    AttemptId,
    AttemptRecord,
    Job,
    JobId,
    JobRequest,
    JobSpec,
    Resources,
    attempt_id,
)
from heliostat.models.nodes import Device, DeviceProcess, Node
from heliostat.models.people import (
    Caller,
    Department,
    Membership,
    Project,
    ProjectRole,
    Role,
    Token,
    User,
)
from heliostat.models.states import ACTIVE, TERMINAL, WAITING, JobState, NodeState, may_move

__all__ = [
    "ACTIVE",
    "TERMINAL",
    "WAITING",
    "ArrayRange",
    "Attempt",
    "AttemptId",
    "AttemptRecord",
    "AuditEntry",
    "Caller",
    "Cause",
    "Department",
    "Device",
    "DeviceProcess",
    "Ended",
    "Job",
    "JobEvent",
    "JobId",
    "JobRequest",
    "JobSpec",
    "JobState",
    "Membership",
    "Node",
    "NodeState",
    "Observation",
    "Project",
    "ProjectRole",
    "Resources",
    "Role",
    "Started",
    "Token",
    "User",
    "attempt_id",
    "may_move",
]
