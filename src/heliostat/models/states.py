"""States of jobs and nodes, and the allowed transitions of a job."""

from enum import StrEnum


class JobState(StrEnum):
    HELD = "held"
    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    PREEMPTED = "preempted"
    LOST = "lost"


class NodeState(StrEnum):
    UP = "up"
    DRAINED = "drained"
    DOWN = "down"


TERMINAL_STATES = frozenset(
    {JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT, JobState.LOST}
)
WAITING_STATES = frozenset({JobState.HELD, JobState.PENDING})
ACTIVE_STATES = frozenset({JobState.STARTING, JobState.RUNNING})

_AFTER_AN_ATTEMPT = TERMINAL_STATES | {JobState.PENDING, JobState.HELD, JobState.PREEMPTED}

ALLOWED_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    # A waiting job fails when its environment cannot be built.
    JobState.HELD: frozenset({JobState.PENDING, JobState.CANCELLED, JobState.FAILED}),
    JobState.PENDING: frozenset({JobState.HELD, JobState.STARTING, JobState.CANCELLED, JobState.FAILED}),
    JobState.STARTING: frozenset({JobState.RUNNING}) | _AFTER_AN_ATTEMPT,
    JobState.RUNNING: _AFTER_AN_ATTEMPT,
    JobState.PREEMPTED: frozenset({JobState.PENDING, JobState.HELD, JobState.CANCELLED}),
} | {state: frozenset() for state in TERMINAL_STATES}


def may_transition(before: JobState, after: JobState) -> bool:
    return after in ALLOWED_TRANSITIONS[before]
