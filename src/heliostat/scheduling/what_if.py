"""Which smaller or different request would start earlier, and when."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from heliostat.models import Job
from heliostat.scheduling.duration_estimator import DurationEstimator
from heliostat.scheduling.feasibility import could_ever_run
from heliostat.scheduling.forecast import Forecast, ForecastOptions, forecast_starts
from heliostat.scheduling.plan import plan
from heliostat.scheduling.queue_state import QueueState
from heliostat.scheduling.request_variations import RequestVariation, list_shorter_variations, list_variations

_RUNS = 3
_WORTH_IT = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class EarlierStartOption:
    """Another request and when it would start."""

    description: str
    change: dict[str, object]  # fields of a submission
    forecast: Forecast
    starts_now: bool  # it would start at once


@dataclass(frozen=True, slots=True)
class WhatIfRequest:
    """A job that is not in the queue, to be asked about on this board, now."""

    queue_state: QueueState
    durations: DurationEstimator
    job: Job
    now: datetime
    may_continue: Callable[[], bool] = lambda: True


def forecast_request(question: WhatIfRequest) -> Forecast | None:
    """None: nobody can tell."""
    return _foreseen(question, ForecastOptions())


def find_earlier_options(question: WhatIfRequest, so_far: Forecast | None) -> list[EarlierStartOption]:
    """Those that would start earlier than so far, the earliest first."""
    found = [option for option in (_shortened(question, so_far),) if option is not None]
    for variation in list_variations(question.job, question.queue_state.node_table.nodes):
        if not question.may_continue():
            break
        if (option := _tried(question, variation, so_far)) is not None:
            found.append(option)
    return sorted(found, key=lambda option: option.forecast.likely_at)


def starts_immediately(question: WhatIfRequest) -> bool:
    board = question.queue_state.copy()
    board.update_job(question.job, question.now)
    made = plan(board.live_snapshot(question.now), board.policy, question.now)
    return any(start.job.id == question.job.id for start in made.starts)


def immediate_forecast(now: datetime) -> Forecast:
    return Forecast(now, now, now, 1.0, now)


def _shortened(question: WhatIfRequest, so_far: Forecast | None) -> EarlierStartOption | None:
    """The longest time that would let it start at once, in a hole before what is kept for others."""
    if not _is_earlier(immediate_forecast(question.now), so_far):
        return None
    for variation in list_shorter_variations(question.job, question.queue_state.policy.assumed_limit_seconds):
        if not question.may_continue():
            return None
        if starts_immediately(replace(question, job=variation.job)):
            return EarlierStartOption(
                variation.description, variation.change, immediate_forecast(question.now), starts_now=True
            )
    return None


def _tried(
    question: WhatIfRequest, variation: RequestVariation, so_far: Forecast | None
) -> EarlierStartOption | None:
    board, job = question.queue_state, variation.job
    data_class = board.accounts.project_or_default(job.project).data_class
    if not could_ever_run(board.node_table.nodes, job.resources, job.placement, data_class):
        return None
    until = None if so_far is None else so_far.likely_at
    found = _foreseen(replace(question, job=job), ForecastOptions(_RUNS, include_limit_run=False, until=until))
    if found is None or not _is_earlier(found, so_far):
        return None
    return EarlierStartOption(
        variation.description, variation.change, found, starts_now=found == immediate_forecast(question.now)
    )


def _foreseen(question: WhatIfRequest, effort: ForecastOptions) -> Forecast | None:
    if starts_immediately(question):
        return immediate_forecast(question.now)
    board = question.queue_state.copy()
    board.update_job(question.job, question.now)
    effort = replace(effort, job_ids={question.job.id}, may_continue=question.may_continue)
    return forecast_starts(board, question.durations, question.now, effort).get(question.job.id)


def _is_earlier(found: Forecast, so_far: Forecast | None) -> bool:
    return so_far is None or found.likely_at + _WORTH_IT < so_far.likely_at
