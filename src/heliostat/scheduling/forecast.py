"""Forecast of job starts: the queue is simulated in virtual time with the same `plan()` as the live queue.

In one run every job uses its full time limit, and no jobs arrive. In the others each job takes as long as a
similar finished job, and jobs arrive as on past days, both sampled for each run. The forecast is the range between
early and late runs; `forecast_calibration` adapts it to past errors.
"""

import heapq
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice

import numpy as np

from heliostat.models import ACTIVE_STATES, Job, JobId, JobState
from heliostat.scheduling.dependencies import DependencyGraph
from heliostat.scheduling.plan import plan
from heliostat.scheduling.queue_state import QueueState
from heliostat.scheduling.snapshot import Plan, PlannedStart, PlannedStop

DEFAULT_RUNS = 10
_HORIZON_SECONDS = 60 * 86400.0
_MERGE_FRACTION = 0.1  # of the time until then: ends this close together are handled as one
_MAX_JOBS_UNMERGED = 60  # up to here every end and arrival is handled on its own, but for
_MAX_STEPS_UNMERGED = 300  # later ones
_MAX_ARRIVALS = 500  # per run, so that a forecast takes few seconds
_MAX_ROUNDS = 20  # of preemption at one time
_SOON = 1.0
_TICK = 0.001  # smallest step, so that rounding cannot stop the simulation
_MINUTE = 60.0
_GOLDEN = 0.6180339887  # multiples modulo 1 are spread evenly, whatever their number
_MIN_RUNS_TO_TRIM = 8  # from here on the earliest and the latest run are ignored
_REQUEUING_STOPS = {"requeue", "preempt"}


@dataclass(frozen=True, slots=True)
class Forecast:
    """The time range in which a job starts."""

    earliest_at: datetime
    likely_at: datetime
    latest_at: datetime
    confidence: float | None  # probability of a start within the range; None: unknown
    limits_at: datetime | None = None  # start if every job uses its full time limit
    runs: int = DEFAULT_RUNS
    source: str = "simulation"  # or the name of the engine's plan


@dataclass(frozen=True, slots=True)
class ForecastOptions:
    """Limits on the effort of a forecast."""

    runs: int = DEFAULT_RUNS
    include_limit_run: bool = True  # also a run in which every job uses its full time limit
    job_ids: Collection[JobId] | None = None  # stop when these have started; None: all
    until: datetime | None = None  # ignore later starts
    may_continue: Callable[[], bool] = lambda: True  # checked before every step


def forecast_starts(
    queue_state: QueueState, now: datetime, options: ForecastOptions | None = None
) -> dict[JobId, Forecast]:
    """By job; without jobs that do not start in most of the runs. The queue state is not changed."""
    options = options or ForecastOptions()
    by_limits = _Run(queue_state, now, options, None).starts() if options.include_limit_run else {}
    sampled = []
    for number in range(options.runs):
        run = _Run(queue_state, now, options, number)
        starts = run.starts()
        if run.was_cut_short:
            break
        sampled.append(starts)
    jobs = by_limits.keys() | {job_id for starts in sampled for job_id in starts}
    forecasts = {job_id: _summarise(job_id, by_limits, sampled, now) for job_id in jobs}
    return {job_id: forecast for job_id, forecast in forecasts.items() if forecast is not None}


class _Run:
    """One simulation run."""

    def __init__(
        self,
        queue_state: QueueState,
        now: datetime,
        options: ForecastOptions,
        number: int | None,
    ) -> None:
        """Without a number: every job uses its full time limit, and no jobs arrive."""
        self._queue_state, self._options = queue_state.copy(), options
        self._shift = None if number is None else number * _GOLDEN % 1.0
        self._begin = self._now = now.timestamp()
        self._horizon = min(self._begin + _HORIZON_SECONDS, options.until.timestamp() if options.until else np.inf)
        self._ends: list[tuple[float, JobId, int]] = []
        self._starts: dict[JobId, float] = {}
        jobs = self._queue_state.jobs.values()
        self._unmerged_steps = _MAX_STEPS_UNMERGED if len(jobs) <= _MAX_JOBS_UNMERGED else 0
        self._pending = frozenset(job.id for job in jobs if job.state is JobState.PENDING)
        self._not_started = set(self._pending if options.job_ids is None else self._pending & set(options.job_ids))
        self._dependencies = DependencyGraph(self._queue_state.jobs)
        self._arrivals: Iterator[tuple[float, Job]] = iter(())
        if number is not None:
            first_id = 1 + max(self._queue_state.jobs, default=0)
            arrivals = self._queue_state.arrivals.sample(self._begin, number, first_id)
            self._arrivals = islice(arrivals, _MAX_ARRIVALS)
        self._next_arrival = next(self._arrivals, None)
        self.was_cut_short = False
        for job in jobs:
            if job.state in ACTIVE_STATES:
                self._schedule_end(job)

    def starts(self) -> dict[JobId, float]:
        """The start of each job, as far as this run was simulated."""
        while self._not_started:
            if not self._options.may_continue():
                self.was_cut_short = True
                break
            decision = self._apply_plans()
            if not self._not_started or not self._advance(decision):
                break
        return self._starts

    def _apply_plans(self) -> Plan:
        """Make and apply plans until nothing more changes at this time."""
        for _ in range(_MAX_ROUNDS):
            now = _time(self._now)
            decision = plan(self._queue_state.live_snapshot(now), self._queue_state.policy, now)
            self._queue_state.update_bookings(decision, now)
            for start in decision.starts:
                self._start(start)
            for stop in decision.stops:
                self._stop(stop)
            if not decision.stops:
                break
        return decision

    def _advance(self, decision: Plan) -> bool:
        """Advance to the next time at which something changes; False: there is none."""
        wake = decision.wake_at.timestamp() if decision.wake_at else np.inf
        first = min(self._ends[0][0] if self._ends else np.inf, self._arrives_at())
        if min(first, wake) > self._horizon:
            return False
        if wake < first:
            self._now = max(wake, self._now + _TICK)
            return True
        until = first
        if self._unmerged_steps > 0:
            self._unmerged_steps -= 1
        else:
            until += max(_MERGE_FRACTION * (first - self._begin), _MINUTE)
        until = first if wake <= until else until
        self._now = max(self._now, (first + until) / 2)
        while self._ends and self._ends[0][0] <= until:
            self._end(*heapq.heappop(self._ends)[1:])
        while self._next_arrival is not None and self._next_arrival[0] <= until:
            self._queue_state.update_job(self._next_arrival[1], _time(self._next_arrival[0]))
            self._next_arrival = next(self._arrivals, None)
        return True

    def _arrives_at(self) -> float:
        return np.inf if self._next_arrival is None else self._next_arrival[0]

    def _start(self, start: PlannedStart) -> None:
        job = replace(
            start.job,
            state=JobState.RUNNING,
            started_at=_time(self._now),
            attempt=start.job.attempt + 1,
            waited_seconds=start.job.queue_wait_seconds(_time(self._now)),
            node=start.node,
            devices=start.devices,
            places=start.places if len(start.places) > 1 else (),
        )
        self._queue_state.update_job(job, _time(self._now))
        if job.id in self._pending:
            self._starts.setdefault(job.id, self._now)
            self._not_started.discard(job.id)
        self._schedule_end(job)

    def _stop(self, stop: PlannedStop) -> None:
        """The job stops at once: its grace time makes no difference to a forecast."""
        job = self._queue_state.jobs[stop.job.id]
        updated = replace(self._as_pending(job), preemptions=job.preemptions + 1)
        self._update(updated if stop.kind == "preempt" else self._as_completed(job))

    def _end(self, job_id: JobId, attempt: int) -> None:
        job = self._queue_state.jobs.get(job_id)
        if job is None or job.state not in ACTIVE_STATES or job.attempt != attempt:
            return  # it was preempted before
        updated = self._as_pending(job) if job.stop_requested in _REQUEUING_STOPS else self._as_completed(job)
        self._update(updated)

    def _update(self, job: Job) -> None:
        """Update the job; when it has ended, its children may enter the queue."""
        now = _time(self._now)
        self._queue_state.update_job(job, now)
        for child in (
            self._dependencies.release_children(job.id, self._queue_state.jobs, now) if job.is_terminal else ()
        ):
            self._queue_state.update_job(child, now)

    def _as_pending(self, job: Job) -> Job:
        pending = replace(job, state=JobState.PENDING, started_at=None, node=None, devices=(), places=())
        return replace(pending, stop_requested=None, waits_since=_time(self._now))

    def _as_completed(self, job: Job) -> Job:
        return replace(job, state=JobState.COMPLETED, ended_at=_time(self._now))

    def _schedule_end(self, job: Job) -> None:
        heapq.heappush(self._ends, (self._end_of(job), job.id, job.attempt))

    def _end_of(self, job: Job) -> float:
        started = job.started_at.timestamp() if job.started_at else self._begin
        if job.stop_requested is not None:
            return self._begin + job.spec.grace_seconds
        ran_for = max(0.0, self._begin - started)
        if self._shift is None:
            return max(started + self._queue_state.durations.limit_seconds(job, ran_for), self._begin + _SOON)
        quantile = (_quantile_of(job) + self._shift) % 1.0
        return started + self._queue_state.durations.estimate_seconds(job, ran_for, quantile)


def _summarise(
    job_id: JobId, by_limits: dict[JobId, float], sampled: list[dict[JobId, float]], now: datetime
) -> Forecast | None:
    limits = by_limits.get(job_id)
    times = sorted(starts.get(job_id, np.inf) for starts in sampled)
    if not times:
        at = None if limits is None else _time(limits)
        return None if at is None else Forecast(now, at, at, None, at, 0)
    spare = int(len(times) >= _MIN_RUNS_TO_TRIM)  # runs ignored at either end
    inside = times[spare : len(times) - spare]
    likely = times[len(times) // 2]
    if not np.isfinite(inside[-1]):
        return None
    return Forecast(
        _time(inside[0]),
        _time(likely),
        _time(inside[-1]),
        None,
        None if limits is None else _time(limits),
        len(times),
    )


def _quantile_of(job: Job) -> float:
    """A pseudo-random number from 0 to 1 that is always the same for a job. With the shift of each run added,
    every job gets short and long run times equally often."""
    bits = (job.id * 1_000_003 + job.attempt) * 0x9E3779B97F4A7C15 & _MASK
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = ((bits ^ bits >> shift) * factor) & _MASK
    return float(bits ^ bits >> 31) / 2.0**64


_MASK = 2**64 - 1


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
