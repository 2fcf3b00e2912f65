"""The states of a job and the moves between them that are allowed."""

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


TERMINAL = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT, JobState.LOST})
WAITING = frozenset({JobState.HELD, JobState.PENDING})
ACTIVE = frozenset({JobState.STARTING, JobState.RUNNING})

_ENDS_OF_AN_ATTEMPT = TERMINAL | {JobState.PENDING, JobState.HELD, JobState.PREEMPTED}

ALLOWED: dict[JobState, frozenset[JobState]] = {
    JobState.HELD: frozenset({JobState.PENDING, JobState.CANCELLED}),
    JobState.PENDING: frozenset({JobState.HELD, JobState.STARTING, JobState.CANCELLED}),
    JobState.STARTING: frozenset({JobState.RUNNING}) | _ENDS_OF_AN_ATTEMPT,
    JobState.RUNNING: _ENDS_OF_AN_ATTEMPT,
    JobState.PREEMPTED: frozenset({JobState.PENDING, JobState.HELD, JobState.CANCELLED}),
} | {state: frozenset() for state in TERMINAL}


def may_move(before: JobState, after: JobState) -> bool:
    return after in ALLOWED[before]
