"""What the idle ladder would have done to a past attempt. Pure."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from heliostat.fair_use.ladder import ENDING_STEPS, IdlePolicy, PlannedStep, climb
from heliostat.fair_use.utilisation import GpuUtilisation
from heliostat.models.fair_use import IdleState, IdleStep


@dataclass(frozen=True, slots=True)
class ReplayedAttempt:
    steps: tuple[PlannedStep, ...]
    returned: timedelta  # from the step that ends the attempt until its real end


def replay_ladder(
    policy: IdlePolicy, steps: tuple[IdleStep, ...], used: GpuUtilisation, started_at: datetime, ended_at: datetime
) -> ReplayedAttempt:
    """As if no answer had come."""
    taken: list[PlannedStep] = []
    for begin, end in used.idle_periods(policy.idle_percent):
        since = max(datetime.fromtimestamp(begin, UTC), started_at)
        until = min(datetime.fromtimestamp(end, UTC), ended_at)
        state, now = IdleState(0, 0), since + policy.window
        while now <= until:
            state, step = climb(policy, steps, state, since, now)
            if step is None:
                break
            taken.append(PlannedStep(step, now))
            if step in ENDING_STEPS:
                return ReplayedAttempt(tuple(taken), ended_at - now)
            now += policy.answer_time
    return ReplayedAttempt(tuple(taken), timedelta())
