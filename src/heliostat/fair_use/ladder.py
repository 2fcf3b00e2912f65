"""The idle ladder: which step is due for a job that does not use its GPUs. Pure.

The server, the preview for admins and the tests call the same function.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from heliostat.models import Job
from heliostat.models.fair_use import IdleState, IdleStep

_ORDER = tuple(IdleStep)
ENDING_STEPS = frozenset({IdleStep.PREEMPT, IdleStep.END})
JUDGED_KINDS = ("batch", "session")
"""Not services, whose GPUs wait for requests, nor builds."""


@dataclass(frozen=True, slots=True)
class IdlePolicy:
    steps: tuple[IdleStep, ...] = (IdleStep.NOTE, IdleStep.MESSAGE, IdleStep.MANAGER)
    window: timedelta = timedelta(minutes=30)  # unused for this long before the first step
    answer_time: timedelta = timedelta(minutes=30)  # between two steps
    idle_percent: float = 5.0  # a GPU with less utilisation is not used


@dataclass(frozen=True, slots=True)
class PlannedStep:
    step: IdleStep
    at: datetime


def is_judged(job: Job) -> bool:
    """Only jobs with whole GPUs: the utilisation of a shared GPU includes the work of other jobs."""
    gpus = job.resources.gpus
    return job.kind in JUDGED_KINDS and job.origin is None and gpus >= 1 and gpus == int(gpus)


def steps_for(policy: IdlePolicy, job: Job) -> tuple[IdleStep, ...]:
    """Sessions get messages only, because their own idle culler ends them. Only preemptible jobs are preempted."""
    if job.kind == "session":
        return tuple(step for step in policy.steps if step not in ENDING_STEPS)
    return tuple(step for step in policy.steps if step is not IdleStep.PREEMPT or job.preemptible)


def climb(
    policy: IdlePolicy, steps: tuple[IdleStep, ...], state: IdleState, idle_since: datetime | None, now: datetime
) -> tuple[IdleState, IdleStep | None]:
    """The state to store, and the step to take now.

    `idle_since`: since when all GPUs have not been used; None: they are used, or it is unknown.
    """
    if idle_since is None or (state.step_at is not None and idle_since > state.step_at):
        state = replace(state, step=None, step_at=None, idle_since=None)
    if idle_since is None:
        return state, None
    since = max(idle_since, state.kept_until or idle_since)
    step = next_step(steps, state.step)
    due = since + policy.window if state.step_at is None else state.step_at + policy.answer_time
    if step is None or now < due:
        return state, None
    return replace(state, step=step, step_at=now, idle_since=state.idle_since or since), step


def next_step(steps: tuple[IdleStep, ...], last: IdleStep | None) -> IdleStep | None:
    """Also if the settings have changed since the last step."""
    return next((step for step in steps if last is None or _ORDER.index(step) > _ORDER.index(last)), None)


def planned_steps(policy: IdlePolicy, steps: tuple[IdleStep, ...], state: IdleState) -> tuple[PlannedStep, ...]:
    """The steps that follow the last one if the GPUs stay unused and no answer comes."""
    planned: list[PlannedStep] = []
    last, at = state.step, state.step_at
    while at is not None and (step := next_step(steps, last)) is not None:
        at += policy.answer_time
        planned.append(PlannedStep(step, at))
        last = step
    return tuple(planned)
