"""Credit for GPUs that are given back early. Pure.

It cannot be farmed: the credit is a part of what the job itself was charged while its GPUs were idle, so every
round of submitting, idling and cancelling costs more than it returns.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from heliostat.models.fair_use import IdleState

_CREDITED_FRACTION = 0.5  # less than all: idle GPUs are never free
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class EarlyReturn:
    gpu_hours: float  # that the job could still have kept its GPUs
    credit_gpu_hours: float


def early_return(
    state: IdleState, last_step_at: datetime | None, limit_at: datetime | None, gpus: float, now: datetime
) -> EarlyReturn:
    """When the owner ends a job between its first and its last step. The sooner, the more."""
    if state.idle_since is None or last_step_at is None:
        return EarlyReturn(0.0, 0.0)
    end = last_step_at if limit_at is None else min(last_step_at, limit_at)
    left, idle = (max(0.0, time / _HOUR) * gpus for time in (end - now, now - state.idle_since))
    return EarlyReturn(left, min(left, idle) * _CREDITED_FRACTION)
