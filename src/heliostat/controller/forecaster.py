"""Foretells when waiting jobs will start, beside the controller and never in its way.

A thread of its own sleeps until something in the queue changes, thinks for a second or two on a copy of it, and
keeps what it found. The first forecast of each job is stored and compared with its real start.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from heliostat.controller.background_loop import BackgroundLoop
from heliostat.controller.controller import Controller
from heliostat.controller.usage_history import load_run_durations, load_run_durations_of_jobs
from heliostat.errors import TooManyRequests
from heliostat.models import TERMINAL_STATES, Job, JobId, JobState
from heliostat.scheduling.duration_estimator import DurationEstimator
from heliostat.scheduling.forecast import Forecast, ForecastOptions, forecast_starts
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

_BREATH_SECONDS = 0.0005  # between two steps, for the other threads
_BACKGROUND = 4.0  # times as long as a step, the others have after it, unless somebody waits for the answer
_KEPT = timedelta(days=90)
_FURTHEST = timedelta(days=60)  # a plan beyond that only says that others have no time limit
_RELOAD_SECONDS = 86400.0
_MOST_LEARNT = 2_000  # jobs at once
_JUDGED = 100  # past forecasts that say how good we are


@dataclass(frozen=True, slots=True)
class ForecastTiming:
    """How often forecasts are made, how much work they may take, and how many people may ask at once."""

    min_pause_seconds: float = 3.0  # between two forecasts
    max_age_seconds: float = 120.0  # after which one is made anew though nothing happened
    settling_seconds: float = 0.5  # without news: most jobs start at once, so let the controller speak first
    max_settling_seconds: float = 5.0  # there may be news all the time
    budget_seconds: float = 3.0  # of work
    question_budget_seconds: float = 1.5  # of work, for when, and again for what would be earlier
    rest_factor: float = 15.0  # times as long as a forecast takes, the thread rests after it
    max_wait_seconds: float = 15.0  # a question waits at most so long while another is being answered
    max_concurrent_questions: int = 8


_TIMING = ForecastTiming()


@dataclass(frozen=True, slots=True)
class ForecastAccuracy:
    """How many of the last forecasts held the real start."""

    within: int = 0
    of: int = 0


@dataclass(frozen=True, slots=True)
class StartEstimate:
    forecast: Forecast | None
    options: tuple[EarlierStartOption, ...]
    starts_now: bool = False  # it would start at once


class Forecaster:
    def __init__(
        self,
        store: Store,
        controller: Controller,
        now: Callable[[], datetime],
        *,
        foresees: bool = True,
        timing: ForecastTiming = _TIMING,
    ) -> None:
        """`foresees` is false where another's queue decides: then that one's plan is all that is told."""
        self._foresees, self._timing = foresees, timing
        self._store, self._controller, self._now = store, controller, now
        self._forecasts: dict[JobId, Forecast] = {}
        self._told: set[JobId] = set()  # whose first forecast is stored
        self._awaits = True  # the start of some that was foretold
        self._accuracy = ForecastAccuracy()
        self._thinking = threading.Lock()  # guards what follows
        self._durations: DurationEstimator | None = None
        self._loaded_at = 0.0
        self._lock = threading.Lock()  # guards what follows
        self._changed = True
        self._ended: list[JobId] = []
        self._askers: set[str] = set()
        self._loop = BackgroundLoop("forecaster", self._look, timing.max_age_seconds, failure="forecast_failed")
        self.close = self._loop.close

    def start(self) -> None:
        if not self._foresees:
            return
        self._store.on_commit(self._on_commit)
        self._loop.start()

    def forecast_of(self, job: Job) -> Forecast | None:
        """When a waiting job will start, as of the newest forecast."""
        if job.state is not JobState.PENDING:
            return None
        return self._forecasts.get(job.id) if self._foresees else self._planned_elsewhere(job)

    def _planned_elsewhere(self, job: Job) -> Forecast | None:
        """Another's plan counts with time limits: it may well be earlier."""
        waiting = self._controller.engine_wait_reason(job)
        now = self._now()
        if waiting is None or waiting.starts_at is None or waiting.starts_at > now + _FURTHEST:
            return None
        at = max(now, waiting.starts_at)
        return Forecast(now, at, at, None, at, 0, waiting.planned_by)

    def accuracy(self) -> ForecastAccuracy:
        return self._accuracy

    def estimate_start(self, job: Job, instead_of: Job | None = None) -> StartEstimate:
        """When a job that is not in the queue would start, and what would start earlier. Stores nothing."""
        if not self._foresees:
            return StartEstimate(None, ())
        with self._only_once(job.user), self._turn():
            now, board = self._now(), self._controller.latest_queue_state()
            known = None if instead_of is None else board.jobs.get(instead_of.id)
            if known is not None:
                board.update_job(replace(known, state=JobState.CANCELLED, ended_at=now), now)
            newest = replace(job, id=1 + max([job.id, *board.jobs]), state=JobState.PENDING, submitted_at=now)
            newest = replace(newest, waits_since=None, waited_seconds=0.0)
            durations, seconds = self._known_durations(board), self._timing.question_budget_seconds
            question = WhatIfRequest(board, durations, newest, now, self._budget(seconds))
            so_far = None if known is None else self.forecast_of(known)
            if so_far is None:
                so_far = forecast_request(question)
            options = find_earlier_options(replace(question, may_continue=self._budget(seconds)), so_far)
            return StartEstimate(so_far, tuple(options), so_far == immediate_forecast(now))

    @contextmanager
    def _only_once(self, user: str) -> Iterator[None]:
        """Nobody asks twice at once, and not too many wait: each takes a thread from those who serve requests."""
        with self._lock:
            if user in self._askers:
                raise TooManyRequests("A question of yours is being answered.", "Wait for its answer.")
            if len(self._askers) >= self._timing.max_concurrent_questions:
                raise TooManyRequests("Too many concurrent requests.", "Ask again in a few seconds.")
            self._askers.add(user)
        try:
            yield
        finally:
            with self._lock:
                self._askers.discard(user)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One at a time: answers cost seconds, and there is one processor to share."""
        if not self._thinking.acquire(timeout=self._timing.max_wait_seconds):
            raise TooManyRequests("Too many concurrent requests.", "Ask again in a few seconds.")
        try:
            yield
        finally:
            self._thinking.release()

    def _on_commit(self, changes: StoreChanges) -> None:
        if not (changes.added_jobs or changes.changed_jobs or changes.nodes_changed or changes.rules_changed):
            return
        ended = [job_id for job_id, values in changes.changed_jobs if values.get("state") in TERMINAL_STATES]
        with self._lock:
            self._changed = True
            self._ended += ended[: _MOST_LEARNT - len(self._ended)]
        self._loop.wake()

    def _look(self) -> float:
        self._settle()
        worked = time.thread_time()
        try:
            if not self._loop.is_closing:
                self._round()
        finally:
            rest_seconds = self._timing.rest_factor * (time.thread_time() - worked)
            self._loop.pause(max(self._timing.min_pause_seconds, rest_seconds))
        return self._timing.max_age_seconds if self._forecasts else threading.TIMEOUT_MAX

    def _settle(self) -> None:
        """Until nothing has changed for a moment."""
        began = time.monotonic()
        while not self._loop.is_closing:
            with self._lock:
                self._changed = False
            self._loop.pause(self._timing.settling_seconds)
            if not self._changed or time.monotonic() > began + self._timing.max_settling_seconds:
                return

    def _round(self) -> None:
        with self._lock:
            ended, self._ended, self._changed = self._ended, [], False
        now, board = self._now(), self._controller.copy_queue_state()
        waiting = any(job.state is JobState.PENDING for job in board.jobs.values())
        with self._turn():
            self._learn(ended)
            durations = self._known_durations(board) if waiting else None
        found: dict[JobId, Forecast] = {}
        if durations is not None:
            go_on = self._budget(self._timing.budget_seconds, _BACKGROUND)
            found = forecast_starts(board, durations, now, ForecastOptions(may_continue=go_on))
        self._forecasts = found
        if found or self._awaits:
            self._note(found, now)

    def _note(self, found: dict[JobId, Forecast], now: datetime) -> None:
        """Store what is told for the first time, and what became of what was told before."""
        with self._store.read() as conn:
            outcome = stored.find_unrecorded_outcomes(conn)
        fresh = [
            stored.FirstForecast(job_id, now, one.earliest_at, one.latest_at)
            for job_id, one in found.items()
            if job_id not in self._told
        ]
        if fresh or outcome.started or outcome.never_started:
            self._store.write(lambda tx: _store(tx, fresh, outcome, now))
        self._told = set(found)
        self._awaits = bool(fresh or outcome.waiting_count)
        with self._store.read() as conn:
            self._accuracy = ForecastAccuracy(*stored.count_accurate_forecasts(conn, _JUDGED))

    def _learn(self, ended: list[JobId]) -> None:
        if self._durations is not None and ended:
            self._durations.add_samples(load_run_durations_of_jobs(self._store, ended))

    def _known_durations(self, board: QueueState) -> DurationEstimator:
        if self._durations is None or time.monotonic() - self._loaded_at > _RELOAD_SECONDS:
            self._durations = DurationEstimator(board.policy.assumed_limit_seconds)
            self._durations.add_samples(load_run_durations(self._store, self._now()))
            self._loaded_at = time.monotonic()
        return self._durations

    def _budget(self, seconds: float, rest: float = 0.0) -> Callable[[], bool]:
        """Says whether to go on: no longer than this, no longer than the server, and with a breath in between."""
        began, worked = time.monotonic(), time.thread_time()
        last = worked

        def go_on() -> bool:
            nonlocal last
            time.sleep(max(_BREATH_SECONDS, rest * (time.thread_time() - last)))
            last = time.thread_time()
            is_long = last - worked > seconds or time.monotonic() - began > (3 + rest) * seconds
            return not (is_long or self._loop.is_closing)

        return go_on


def _store(
    tx: Transaction, fresh: list[stored.FirstForecast], outcome: stored.ForecastOutcomes, now: datetime
) -> None:
    stored.add_forecasts(tx, fresh)
    stored.record_forecast_outcomes(tx, outcome)
    stored.remove_old_forecasts(tx, now - _KEPT)
