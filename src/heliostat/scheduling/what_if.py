"""What-if estimates: which smaller or different request would start earlier, and when."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from heliostat.models import Job
from heliostat.scheduling.feasibility import could_ever_run
from heliostat.scheduling.forecast import Forecast, ForecastOptions, forecast_starts
from heliostat.scheduling.plan import plan
from heliostat.scheduling.queue_state import QueueState
from heliostat.scheduling.request_variations import RequestVariation, list_shorter_variations, list_variations

_RUNS = 3
_WORTH_IT = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class EarlierStartOption:
    """A changed request and its forecast start."""

    description: str
    change: dict[str, object]  # fields of a submission
    forecast: Forecast
    starts_now: bool


@dataclass(frozen=True, slots=True)
class WhatIfRequest:
    """A job that is not in the queue, and the queue in which to forecast its start."""

    queue_state: QueueState
    job: Job
    now: datetime
    may_continue: Callable[[], bool] = lambda: True


def forecast_request(request: WhatIfRequest) -> Forecast | None:
    """None: no start within the forecast horizon."""
    return _forecast(request, ForecastOptions())


def find_earlier_options(request: WhatIfRequest, current: Forecast | None) -> list[EarlierStartOption]:
    """Variations that would start earlier than the current forecast, the earliest first."""
    options = [option for option in (_find_shorter(request, current),) if option is not None]
    for variation in list_variations(request.job, request.queue_state.node_table.nodes):
        if not request.may_continue():
            break
        if (option := _try_variation(request, variation, current)) is not None:
            options.append(option)
    return sorted(options, key=lambda option: option.forecast.likely_at)


def starts_immediately(request: WhatIfRequest) -> bool:
    queue_state = request.queue_state.copy()
    queue_state.update_job(request.job, request.now)
    decision = plan(queue_state.live_snapshot(request.now), queue_state.policy, request.now)
    return any(start.job.id == request.job.id for start in decision.starts)


def immediate_forecast(now: datetime) -> Forecast:
    return Forecast(now, now, now, 1.0, now)


def _find_shorter(request: WhatIfRequest, current: Forecast | None) -> EarlierStartOption | None:
    """The longest time limit with which it could start now by backfill."""
    if not _is_earlier(immediate_forecast(request.now), current):
        return None
    for variation in list_shorter_variations(request.job, request.queue_state.policy.assumed_limit_seconds):
        if not request.may_continue():
            return None
        if starts_immediately(replace(request, job=variation.job)):
            return EarlierStartOption(
                variation.description, variation.change, immediate_forecast(request.now), starts_now=True
            )
    return None


def _try_variation(
    request: WhatIfRequest, variation: RequestVariation, current: Forecast | None
) -> EarlierStartOption | None:
    queue_state, job = request.queue_state, variation.job
    data_class = queue_state.accounts.project_or_default(job.project).data_class
    if not could_ever_run(queue_state.node_table.nodes, job.resources, job.placement, data_class):
        return None
    until = None if current is None else current.likely_at
    forecast = _forecast(replace(request, job=job), ForecastOptions(_RUNS, include_limit_run=False, until=until))
    if forecast is None or not _is_earlier(forecast, current):
        return None
    return EarlierStartOption(
        variation.description, variation.change, forecast, starts_now=forecast == immediate_forecast(request.now)
    )


def _forecast(request: WhatIfRequest, options: ForecastOptions) -> Forecast | None:
    if starts_immediately(request):
        return immediate_forecast(request.now)
    queue_state = request.queue_state.copy()
    queue_state.update_job(request.job, request.now)
    options = replace(options, job_ids={request.job.id}, may_continue=request.may_continue)
    return forecast_starts(queue_state, request.now, options).get(request.job.id)


def _is_earlier(forecast: Forecast, current: Forecast | None) -> bool:
    return current is None or forecast.likely_at + _WORTH_IT < current.likely_at
