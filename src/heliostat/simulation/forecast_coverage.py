"""How accurate forecasts would have been: in a replay, a sample of the jobs is forecast when it is submitted."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from heliostat.models import Job, JobId, JobState
from heliostat.models.forecasts import PastForecast
from heliostat.scheduling.forecast import ForecastOptions, forecast_starts
from heliostat.scheduling.forecast_calibration import (
    MAX_PAST_FORECASTS,
    ForecastAccuracy,
    ForecastCalibration,
    forecast_range,
    measure_accuracy,
)
from heliostat.scheduling.queue_state import QueueState
from heliostat.scheduling.snapshot import Plan


@dataclass(frozen=True, slots=True)
class ForecastCoverage:
    immediate: int  # jobs of the sample that started when they were submitted
    without_forecast: int  # jobs that did not start in most of the simulation runs
    computed: ForecastAccuracy  # before calibration
    shown: ForecastAccuracy


class ForecastablePlanner(Protocol):
    @property
    def queue_state(self) -> QueueState: ...
    def update_job(self, job: Job, now: datetime) -> None: ...
    def make_decision(self, now: datetime) -> Plan: ...


class ForecastRecorder:
    """A planner that also makes forecasts and records the starts of these jobs. Only outcomes that are known at
    the time of a forecast influence it."""

    def __init__(self, planner: ForecastablePlanner, sample: Collection[JobId]) -> None:
        self._planner, self._sample = planner, frozenset(sample)
        self._submitted: list[JobId] = []  # jobs to forecast
        self._forecasts: dict[JobId, PastForecast] = {}
        self._immediate = self._without_forecast = 0

    def update_job(self, job: Job, now: datetime) -> None:
        if job.id in self._sample:
            if job.state is JobState.PENDING and job.attempt == 0:
                self._submitted.append(job.id)
            elif job.state is JobState.RUNNING and job.attempt == 1 and job.id in self._forecasts:
                self._forecasts[job.id] = replace(self._forecasts[job.id], started_at=now.timestamp())
        self._planner.update_job(job, now)

    def make_decision(self, now: datetime) -> Plan:
        decision = self._planner.make_decision(now)
        started = {start.job.id for start in decision.starts}
        waiting = [job_id for job_id in self._submitted if job_id not in started]
        self._immediate += len(self._submitted) - len(waiting)
        self._submitted.clear()
        for job_id in waiting:
            self._forecast(job_id, now)
        return decision

    def coverage(self) -> ForecastCoverage:
        past = list(self._forecasts.values())
        uncalibrated = [replace(forecast, shown=forecast.computed) for forecast in past]
        return ForecastCoverage(
            self._immediate, self._without_forecast, measure_accuracy(uncalibrated), measure_accuracy(past)
        )

    def _forecast(self, job_id: JobId, now: datetime) -> None:
        options = ForecastOptions(include_limit_run=False, job_ids={job_id})
        computed = forecast_starts(self._planner.queue_state, now, options).get(job_id)
        if computed is None:
            self._without_forecast += 1
            return
        calibration = ForecastCalibration(list(self._forecasts.values())[-MAX_PAST_FORECASTS:], now)
        self._forecasts[job_id] = PastForecast(
            now.timestamp(), forecast_range(computed), forecast_range(calibration.calibrate(computed, now))
        )


def sample_jobs(count: int, size: int) -> range:
    """Every n-th of the jobs with the numbers 1 to `count`: about `size` jobs."""
    return range(1, count + 1, max(1, count // size)) if size else range(0)
