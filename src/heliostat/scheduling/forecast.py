"""When waiting jobs will start: the queue played forward in virtual time, by the same `plan()` that decides now.

Nobody new comes in such a run. In one run every job takes all its time; in the others each takes as long as one
like it took, drawn anew in each run. What lies between the quick and the slow runs is the forecast.
"""

import heapq
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from heliostat.models import ACTIVE_STATES, Job, JobId, JobState
from heliostat.scheduling.dependencies import DependencyGraph
from heliostat.scheduling.duration_estimator import DurationEstimator
from heliostat.scheduling.plan import plan
from heliostat.scheduling.queue_state import QueueState
from heliostat.scheduling.snapshot import Plan, PlannedStart, PlannedStop

DEFAULT_RUNS = 10
_FURTHEST = 60 * 86400.0  # seconds: what is further away is not told
_GRAIN = 0.1  # of the time that lies between now and then: ends so near to each other are taken as one
_FEW = 60  # jobs, for which every end is looked at on its own
_ROUNDS = 20  # of sending jobs away at one moment
_SOON = 1.0
_TICK = 0.001  # time goes on, however it is rounded
_MINUTE = 60.0
_GOLDEN = 0.6180339887  # its multiples spread evenly, however many are taken
_ENOUGH_RUNS = 3
_MANY_RUNS = 8  # of which the quickest and the slowest may be left out
_GOES_BACK = {"requeue", "preempt"}


@dataclass(frozen=True, slots=True)
class Forecast:
    """Between which times a job starts, if nobody new comes."""

    earliest_at: datetime
    likely_at: datetime
    latest_at: datetime
    confidence: float | None  # the part of the runs that lies in between; None: there were too few
    limits_at: datetime | None = None  # when it starts if every job takes all its time
    runs: int = DEFAULT_RUNS
    source: str = "trial runs"  # or whose plan it is


@dataclass(frozen=True, slots=True)
class ForecastOptions:
    """How much to do for a forecast."""

    runs: int = DEFAULT_RUNS
    include_limit_run: bool = True  # also a run in which every job takes all its time
    job_ids: Collection[JobId] | None = None  # stop when these have started; None: all
    until: datetime | None = None  # what starts later is of no interest
    may_continue: Callable[[], bool] = lambda: True  # asked before every step


def forecast_starts(
    board: QueueState, durations: DurationEstimator, now: datetime, effort: ForecastOptions | None = None
) -> dict[JobId, Forecast]:
    """By job. Those that do not start in most of the runs are left out. The board is not changed."""
    effort = effort or ForecastOptions()
    by_limits = _Run(board, durations, now, effort, None).starts() if effort.include_limit_run else {}
    sampled = []
    for number in range(effort.runs):
        run = _Run(board, durations, now, effort, number * _GOLDEN % 1.0)
        starts = run.starts()
        if run.was_cut_short:
            break
        sampled.append(starts)
    jobs = by_limits.keys() | {job_id for starts in sampled for job_id in starts}
    found = {job_id: _summed_up(job_id, by_limits, sampled, now) for job_id in jobs}
    return {job_id: one for job_id, one in found.items() if one is not None}


class _Run:
    """One way in which it may go."""

    def __init__(
        self,
        board: QueueState,
        durations: DurationEstimator,
        now: datetime,
        effort: ForecastOptions,
        shift: float | None,
    ) -> None:
        self._board, self._durations, self._effort, self._shift = board.copy(), durations, effort, shift
        self._begin = self._now = now.timestamp()
        self._furthest = min(self._begin + _FURTHEST, effort.until.timestamp() if effort.until else np.inf)
        self._ends: list[tuple[float, JobId, int]] = []
        self._starts: dict[JobId, float] = {}
        jobs = self._board.jobs.values()
        self._grain, self._least = (_GRAIN, _MINUTE) if len(self._board.jobs) > _FEW else (0.0, 0.0)
        self._pending = frozenset(job.id for job in jobs if job.state is JobState.PENDING)
        self._missing = set(self._pending if effort.job_ids is None else self._pending & set(effort.job_ids))
        self._families = DependencyGraph(self._board.jobs)
        self.was_cut_short = False
        for job in jobs:
            if job.state in ACTIVE_STATES:
                self._will_end(job)

    def starts(self) -> dict[JobId, float]:
        """When each job starts, as far as this run came."""
        while self._missing:
            if not self._effort.may_continue():
                self.was_cut_short = True
                break
            made = self._settle()
            if not self._missing or not self._move_on(made):
                break
        return self._starts

    def _settle(self) -> Plan:
        """Carry out what is planned for this moment."""
        for _ in range(_ROUNDS):
            now = _time(self._now)
            made = plan(self._board.live_snapshot(now), self._board.policy, now)
            for start in made.starts:
                self._start(start)
            for stop in made.stops:
                self._stop(stop)
            if not made.stops:
                break
        return made

    def _move_on(self, made: Plan) -> bool:
        """To the next moment at which something changes; False: nothing does."""
        wake = made.wake_at.timestamp() if made.wake_at else np.inf
        first = self._ends[0][0] if self._ends else np.inf
        if min(first, wake) > self._furthest:
            return False
        if wake < first:
            self._now = max(wake, self._now + _TICK)
            return True
        until = first + max(self._grain * (first - self._begin), self._least)
        until = first if wake <= until else until
        self._now = max(self._now, (first + until) / 2)
        while self._ends and self._ends[0][0] <= until:
            self._end(*heapq.heappop(self._ends)[1:])
        return True

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
        self._board.update_job(job, _time(self._now))
        if job.id in self._pending:
            self._starts.setdefault(job.id, self._now)
            self._missing.discard(job.id)
        self._will_end(job)

    def _stop(self, stop: PlannedStop) -> None:
        """At once: how long it takes to go makes no difference to a forecast."""
        job = self._board.jobs[stop.job.id]
        again = replace(self._waiting(job), preemptions=job.preemptions + 1)
        self._put(again if stop.kind == "preempt" else self._over(job))

    def _end(self, job_id: JobId, attempt: int) -> None:
        job = self._board.jobs.get(job_id)
        if job is None or job.state not in ACTIVE_STATES or job.attempt != attempt:
            return  # it was sent away before
        again = self._waiting(job) if job.stop_requested in _GOES_BACK else self._over(job)
        self._put(again)

    def _put(self, job: Job) -> None:
        """When it is over, those who waited for it take their place in line."""
        now = _time(self._now)
        self._board.update_job(job, now)
        for child in self._families.release_children(job.id, self._board.jobs, now) if job.is_terminal else ():
            self._board.update_job(child, now)

    def _waiting(self, job: Job) -> Job:
        fresh = replace(job, state=JobState.PENDING, started_at=None, node=None, devices=(), places=())
        return replace(fresh, stop_requested=None, waits_since=_time(self._now))

    def _over(self, job: Job) -> Job:
        return replace(job, state=JobState.COMPLETED, ended_at=_time(self._now))

    def _will_end(self, job: Job) -> None:
        heapq.heappush(self._ends, (self._end_of(job), job.id, job.attempt))

    def _end_of(self, job: Job) -> float:
        began = job.started_at.timestamp() if job.started_at else self._begin
        if job.stop_requested is not None:
            return self._begin + job.spec.grace_seconds
        if self._shift is None:
            return max(began + self._durations.limit_seconds(job), self._begin + _SOON)
        chance = (_luck(job) + self._shift) % 1.0
        return began + self._durations.estimate_seconds(job, max(0.0, self._begin - began), chance)


def _summed_up(
    job_id: JobId, by_limits: dict[JobId, float], sampled: list[dict[JobId, float]], now: datetime
) -> Forecast | None:
    limits = by_limits.get(job_id)
    times = sorted(starts.get(job_id, np.inf) for starts in sampled)
    if not times:
        at = None if limits is None else _time(limits)
        return None if at is None else Forecast(now, at, at, None, at, 0)
    spare = int(len(times) >= _MANY_RUNS)  # on either side
    inside = times[spare : len(times) - spare]
    likely = times[len(times) // 2]
    if not np.isfinite(inside[-1]):
        return None
    return Forecast(
        _time(inside[0]),
        _time(likely),
        _time(inside[-1]),
        _part_inside(times, inside) if len(times) >= _ENOUGH_RUNS else None,
        None if limits is None else _time(limits),
        len(times),
    )


def _part_inside(times: list[float], inside: list[float]) -> float:
    return round(sum(inside[0] <= at <= inside[-1] for at in times) / len(times), 2)


def _luck(job: Job) -> float:
    """A number from 0 to 1 that looks like chance and is the same each time. The run's own shift, added to
    it, gives each job its quick and its slow turns alike."""
    bits = (job.id * 1_000_003 + job.attempt) * 0x9E3779B97F4A7C15 & _MASK
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = ((bits ^ bits >> shift) * factor) & _MASK
    return float(bits ^ bits >> 31) / 2.0**64


_MASK = 2**64 - 1


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
