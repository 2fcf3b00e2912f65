"""Forecasts the start of waiting jobs in a background thread, without delaying the controller.

The thread sleeps until something in the queue changes, computes for a second or two on a copy of the queue, and
keeps the result. The first forecast of each job is stored and compared with its actual start; these errors
determine how wide the next ranges are. The plan of an engine with its own queue takes the place of the simulation.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from heliostat.controller.background_loop import BackgroundLoop
from heliostat.controller.controller import Controller
from heliostat.engines.contract import Engine
from heliostat.errors import TooManyRequests
from heliostat.models import Job, JobId, JobState
from heliostat.models.forecasts import PastForecast
from heliostat.scheduling.forecast import Forecast, ForecastOptions, forecast_starts
from heliostat.scheduling.forecast_calibration import (
    MAX_PAST_FORECASTS,
    ForecastAccuracy,
    ForecastCalibration,
    forecast_range,
    measure_accuracy,
)
from heliostat.scheduling.queue_state import QueueState
from heliostat.scheduling.what_if import (
    EarlierStartOption,
    WhatIfRequest,
    find_earlier_options,
    forecast_request,
    immediate_forecast,
)
from heliostat.store import forecasts as stored
from heliostat.store.database import Store, StoreChanges, Transaction

_YIELD_SECONDS = 0.0005  # between two steps, for the other threads
_RETENTION = timedelta(days=90)
_IMMEDIATELY = timedelta(seconds=5)  # an engine with its own queue plans in cycles of seconds
_MAX_HORIZON = timedelta(days=60)  # a later planned start only means that other jobs have no time limit
_ACCURACY_SAMPLES = 100  # past forecasts for the accuracy


@dataclass(frozen=True, slots=True)
class ForecastTiming:
    """Intervals, computing budgets and concurrency limits of forecasts."""

    min_pause_seconds: float = 3.0  # between two forecasts
    max_age_seconds: float = 120.0  # then it is renewed even without changes
    settling_seconds: float = 0.5  # without changes before a forecast: most jobs start at once and need none
    max_settling_seconds: float = 5.0  # there may be changes all the time
    budget_seconds: float = 3.0  # of computing time
    step_rest_factor: float = 4.0  # pause after a step as a multiple of its duration, unless a user waits
    question_budget_seconds: float = 1.5  # of computing time, for the start and again for earlier options
    rest_factor: float = 15.0  # pause of the thread as a multiple of the duration of a forecast
    max_wait_seconds: float = 15.0  # of a request while another is being computed
    max_concurrent_questions: int = 8


_TIMING = ForecastTiming()


@dataclass(frozen=True, slots=True)
class StartEstimate:
    forecast: Forecast | None
    options: tuple[EarlierStartOption, ...]
    starts_now: bool = False  # it would start immediately
    no_forecast_reason: str | None = None  # if Heliostat is paused: when it starts


class Forecaster:
    def __init__(
        self,
        store: Store,
        controller: Controller,
        now: Callable[[], datetime],
        *,
        engine: Engine,
        timing: ForecastTiming = _TIMING,
    ) -> None:
        self._engine_name, self._engine_plans = engine.name, engine.capabilities.has_own_queue
        self._timing = timing
        self._store, self._controller, self._now = store, controller, now
        self._forecasts: dict[JobId, Forecast] = {}
        self._stored: set[JobId] = set()  # jobs whose first forecast is stored
        self._has_waiting_jobs = False
        self._accuracy = ForecastAccuracy()
        self._calibration = ForecastCalibration((), now())
        self._computing = threading.Lock()
        self._lock = threading.Lock()  # guards the next two
        self._changed = True
        self._users_waiting: set[str] = set()
        self._loop = BackgroundLoop(
            "forecaster", self._run_once, timing.max_age_seconds, failure="forecast_failed"
        )
        self.close = self._loop.close

    def start(self) -> None:
        self._store.on_commit(self._on_commit)
        self._loop.start()

    def forecast_of(self, job: Job) -> Forecast | None:
        """When a waiting job will start, as of the newest forecast. None while Heliostat is paused: its end
        is unknown."""
        if job.state is not JobState.PENDING or self._controller.is_paused:
            return None
        if not self._engine_plans:
            return self._forecasts.get(job.id)
        now = self._now()
        planned = self._engine_forecast(job, now)
        return planned and self._calibrate(planned, job, now)

    def _engine_forecast(self, job: Job, now: datetime) -> Forecast | None:
        waiting = self._controller.engine_wait_reason(job)
        if waiting is None or waiting.starts_at is None or waiting.starts_at > now + _MAX_HORIZON:
            return None
        return _as_planned(max(now, waiting.starts_at), waiting.planned_by)

    def accuracy(self) -> ForecastAccuracy:
        return self._accuracy

    def estimate_start(self, job: Job, instead_of: Job | None = None) -> StartEstimate:
        """When a job that is not in the queue would start, and what would start earlier. Stores nothing."""
        if self._engine_plans:
            return self._engine_estimate(job, instead_of)
        with self._limit_concurrency(job.user), self._compute_slot():
            now, state = self._now(), self._controller.latest_queue_state()
            known = None if instead_of is None else state.jobs.get(instead_of.id)
            if known is not None:
                state.update_job(replace(known, state=JobState.CANCELLED, ended_at=now), now)
            newest = replace(job, id=1 + max([job.id, *state.jobs]), state=JobState.PENDING, submitted_at=now)
            newest = replace(newest, waits_since=None, waited_seconds=0.0)
            seconds = self._timing.question_budget_seconds
            question = WhatIfRequest(state, newest, now, self._budget(seconds))
            so_far = forecast_request(question)
            options = find_earlier_options(replace(question, may_continue=self._budget(seconds)), so_far)
            if so_far is None or so_far == immediate_forecast(now):
                return StartEstimate(so_far, tuple(options), so_far is not None)
            calibrated = (known and self.forecast_of(known)) or self._calibrate(so_far, newest, now)
            changed = tuple(
                option
                if option.starts_now
                else replace(option, forecast=self._calibrate(option.forecast, newest, now))
                for option in options
            )
            return StartEstimate(calibrated, changed)

    def _calibrate(self, computed: Forecast, job: Job, now: datetime) -> Forecast:
        return self._calibration.calibrate(computed, _waits_from(job, now))

    def _engine_estimate(self, job: Job, instead_of: Job | None) -> StartEstimate:
        """Of the engine's own queue, which knows nothing about jobs that still wait for others."""
        if instead_of is not None:
            return StartEstimate(self.forecast_of(instead_of), ())
        if job.parents_left:
            return StartEstimate(None, ())
        with self._limit_concurrency(job.user):
            at = self._controller.forecast_engine_start(job)
        now = self._now()
        if at is None:
            return StartEstimate(None, ())
        at = max(now, at, job.begin_at or now)
        starts_now = at - now < _IMMEDIATELY
        planned = _as_planned(at, "Slurm's plan")
        return StartEstimate(planned if starts_now else self._calibrate(planned, job, now), (), starts_now)

    @contextmanager
    def _limit_concurrency(self, user: str) -> Iterator[None]:
        """One request per user, and few in total: each occupies a thread of the server."""
        with self._lock:
            if user in self._users_waiting:
                raise TooManyRequests("Another forecast for you is in progress.", "Wait until it is finished.")
            if len(self._users_waiting) >= self._timing.max_concurrent_questions:
                raise TooManyRequests("Too many concurrent requests.", "Try again in a few seconds.")
            self._users_waiting.add(user)
        try:
            yield
        finally:
            with self._lock:
                self._users_waiting.discard(user)

    @contextmanager
    def _compute_slot(self) -> Iterator[None]:
        """One at a time: a forecast takes seconds of computing time."""
        if not self._computing.acquire(timeout=self._timing.max_wait_seconds):
            raise TooManyRequests("Another forecast is in progress.", "Try again in a few seconds.")
        try:
            yield
        finally:
            self._computing.release()

    def _on_commit(self, changes: StoreChanges) -> None:
        if not (changes.added_jobs or changes.changed_jobs or changes.nodes_changed or changes.rules_changed):
            return
        with self._lock:
            self._changed = True
        self._loop.wake()

    def _run_once(self) -> float:
        self._settle()
        worked = time.thread_time()
        try:
            if not self._loop.is_closing:
                self._round()
        finally:
            rest_seconds = self._timing.rest_factor * (time.thread_time() - worked)
            self._loop.pause(max(self._timing.min_pause_seconds, rest_seconds))
        return self._seconds_until_outdated()

    def _seconds_until_outdated(self) -> float:
        """Until the first forecast start: if the job still waits then, the jobs before it run longer than
        expected."""
        if not self._forecasts:
            return self._timing.max_age_seconds if self._has_waiting_jobs else threading.TIMEOUT_MAX
        first = min(forecast.likely_at for forecast in self._forecasts.values())
        seconds = max((first - self._now()).total_seconds(), self._timing.min_pause_seconds)
        return min(seconds, self._timing.max_age_seconds)

    def _settle(self) -> None:
        """Wait until nothing has changed for `settling_seconds`."""
        began = time.monotonic()
        while not self._loop.is_closing:
            with self._lock:
                self._changed = False
            self._loop.pause(self._timing.settling_seconds)
            if not self._changed or time.monotonic() > began + self._timing.max_settling_seconds:
                return

    def _round(self) -> None:
        with self._lock:
            self._changed = False
        now, state = self._now(), self._controller.copy_queue_state()
        self._has_waiting_jobs = any(job.state is JobState.PENDING for job in state.jobs.values())
        computed = self._compute(state, now) if self._has_waiting_jobs else {}
        self._learn(now)
        self._forecasts = {
            job_id: self._calibrate(forecast, state.jobs[job_id], now) for job_id, forecast in computed.items()
        }
        if not self._controller.is_paused:
            self._store_forecasts(computed, state, now)

    def _compute(self, state: QueueState, now: datetime) -> dict[JobId, Forecast]:
        if not self._engine_plans:
            with self._compute_slot():
                may_continue = self._budget(self._timing.budget_seconds, self._timing.step_rest_factor)
                return forecast_starts(state, now, ForecastOptions(may_continue=may_continue))
        pending = [job for job in state.jobs.values() if job.state is JobState.PENDING]
        forecasts = {job.id: self._engine_forecast(job, now) for job in pending}
        return {job_id: forecast for job_id, forecast in forecasts.items() if forecast is not None}

    def _learn(self, now: datetime) -> None:
        """Store the outcomes of earlier forecasts; they determine the width of the next ones."""
        with self._store.read() as conn:
            outcome = stored.find_unrecorded_outcomes(conn)
        if outcome.started or outcome.never_started:
            self._store.write(lambda tx: stored.record_forecast_outcomes(tx, outcome))
        with self._store.read() as conn:
            past = stored.list_past_forecasts(conn, self._engine_name, MAX_PAST_FORECASTS)
        self._calibration = ForecastCalibration(past, now)
        self._accuracy = measure_accuracy([one for one in past if one.started_at is not None][-_ACCURACY_SAMPLES:])

    def _store_forecasts(self, computed: dict[JobId, Forecast], state: QueueState, now: datetime) -> None:
        """Store the first forecast of each job, with the range that users see."""
        fresh = {
            job_id: PastForecast(
                _waits_from(state.jobs[job_id], now).timestamp(),
                forecast_range(forecast),
                forecast_range(self._forecasts[job_id]),
            )
            for job_id, forecast in computed.items()
            if job_id not in self._stored
        }
        if fresh:
            self._store.write(lambda tx: _write(tx, self._engine_name, fresh, now))
        self._stored = set(computed)

    def _budget(self, seconds: float, rest: float = 0.0) -> Callable[[], bool]:
        """A function that returns whether to continue: within the budget and until the server closes. It yields
        to other threads, and rests only while no user waits for an answer."""
        began, worked = time.monotonic(), time.thread_time()
        last = worked

        def may_continue() -> bool:
            nonlocal last
            pause = 0.0 if self._users_waiting else rest * (time.thread_time() - last)
            time.sleep(max(_YIELD_SECONDS, pause))
            last = time.thread_time()
            is_long = last - worked > seconds or time.monotonic() - began > (3 + rest) * seconds
            return not (is_long or self._loop.is_closing)

        return may_continue


def _waits_from(job: Job, now: datetime) -> datetime:
    """A wait for resources begins at the begin time of the job."""
    return now if job.begin_at is None else max(now, job.begin_at)


def _as_planned(at: datetime, planner: str) -> Forecast:
    return Forecast(at, at, at, None, at, 0, planner)


def _write(tx: Transaction, engine_name: str, fresh: dict[JobId, PastForecast], now: datetime) -> None:
    stored.add_forecasts(tx, engine_name, fresh)
    stored.remove_old_forecasts(tx, now - _RETENTION)
