"""One policy over one workload: a heap of ends, a list of arrivals, the planner asked once for each instant."""

import gc
import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from heliostat.models import Job, JobState, TaskPlacement
from heliostat.simulation.workload import Workload

_TOLD_EVERY = 200  # ends


class ReplayStart(Protocol):
    @property
    def job(self) -> Job: ...
    @property
    def node(self) -> str: ...
    @property
    def devices(self) -> tuple[str, ...]: ...
    @property
    def places(self) -> tuple[TaskPlacement, ...]: ...


class ReplayStop(Protocol):
    @property
    def job(self) -> Job: ...
    @property
    def kind(self) -> str: ...


class PlanDecision(Protocol):
    @property
    def starts(self) -> Sequence[ReplayStart]: ...
    @property
    def stops(self) -> Sequence[ReplayStop]: ...
    @property
    def wake_at(self) -> datetime | None: ...


class Planner(Protocol):
    """The queue's brain, told of every change and asked what to do."""

    def update_job(self, job: Job, now: datetime) -> None: ...
    def make_decision(self, now: datetime) -> PlanDecision: ...


class AttemptSpan(NamedTuple):
    """One attempt; seconds count from the first submission."""

    job_index: int  # its place in the workload
    started_seconds: float
    ended_seconds: float
    lost_seconds: float  # seconds of work thrown away at its end


EndedJobsCallback = Callable[[int], None]
"""Is given the number of jobs that are over."""


def replay(
    workload: Workload,
    planner: Planner,
    *,
    checkpoint_seconds: float | None = None,
    told: EndedJobsCallback | None = None,
) -> list[AttemptSpan]:
    """Every attempt of every job, in the order they ended. A job the planner never starts has none."""
    return _Replay(workload, planner, checkpoint_seconds, told or (lambda over: None)).run()


class _Replay:
    def __init__(
        self, workload: Workload, planner: Planner, checkpoint_seconds: float | None, told: EndedJobsCallback
    ) -> None:
        self._workload, self._planner = workload, planner
        self._checkpoint_seconds, self._told = checkpoint_seconds, told
        self._origin = workload.jobs[0].submitted_at if workload.jobs else datetime.min
        self._arrived = 0
        self._over = 0
        self._ends: list[tuple[float, int, int]] = []  # when, job, attempt
        self._running: dict[int, tuple[Job, float]] = {}  # job: as it runs, since when
        self._done = [0.0] * len(workload.jobs)  # seconds of work that will not be lost
        self._spans: list[AttemptSpan] = []

    def run(self) -> list[AttemptSpan]:
        wake = math.inf
        with _without_looking_for_cycles():
            while (now := min(self._next_arrival(), self._next_end(), wake)) < math.inf:
                wake = self._round(now)
        self._told(self._over)
        return self._spans

    def _round(self, now: float) -> float:
        """All that happens at one instant, then the planner's answer; when it wants to be asked again."""
        at = self._origin + timedelta(seconds=now)
        self._end_due(now, at)
        self._submit_due(now, at)
        while True:
            decision = self._planner.make_decision(at)
            for start in decision.starts:
                self._start(start, now, at)
            if not [stop for stop in decision.stops if self._stop(stop, now, at)]:
                break
        wake = math.inf if decision.wake_at is None else (decision.wake_at - self._origin).total_seconds()
        return wake if wake > now or (wake == now and decision.starts) else math.inf

    def _next_arrival(self) -> float:
        submitted = self._workload.submitted_seconds
        return submitted[self._arrived] if self._arrived < len(submitted) else math.inf

    def _next_end(self) -> float:
        while self._ends and not self._is_current(self._ends[0]):
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else math.inf

    def _is_current(self, end: tuple[float, int, int]) -> bool:
        running = self._running.get(end[1])
        return running is not None and running[0].attempt == end[2]

    def _submit_due(self, now: float, at: datetime) -> None:
        while self._next_arrival() <= now:
            self._planner.update_job(self._workload.jobs[self._arrived], at)
            self._arrived += 1

    def _end_due(self, now: float, at: datetime) -> None:
        while self._next_end() <= now:
            _, place, _ = heapq.heappop(self._ends)
            job, started = self._running.pop(place)
            self._spans.append(AttemptSpan(place, started, now, 0.0))
            self._planner.update_job(replace(job, state=JobState.COMPLETED, ended_at=at, exit_code=0), at)
            self._over += 1
            if self._over % _TOLD_EVERY == 0:
                self._told(self._over)

    def _start(self, start: ReplayStart, now: float, at: datetime) -> None:
        place = start.job.id - 1
        job = replace(
            start.job,
            state=JobState.RUNNING,
            attempt=start.job.attempt + 1,
            node=start.node,
            devices=start.devices,
            places=start.places,
            started_at=at,
            waited_seconds=start.job.queue_wait_seconds(at),
        )
        self._running[place] = (job, now)
        left = self._workload.run_seconds[place] - self._done[place]
        heapq.heappush(self._ends, (round(now + left, 6), place, job.attempt))
        self._planner.update_job(job, at)

    def _stop(self, stop: ReplayStop, now: float, at: datetime) -> bool:
        """Send a job back to the queue; what it did since its last checkpoint is lost."""
        place = stop.job.id - 1
        if stop.kind != "preempt" or place not in self._running:
            return False
        job, started = self._running.pop(place)
        every = self._checkpoint_seconds
        kept = (now - started) // every * every if every else 0.0
        self._done[place] += kept
        self._spans.append(AttemptSpan(place, started, now, now - started - kept))
        waiting = replace(
            job,
            state=JobState.PENDING,
            node=None,
            devices=(),
            places=(),
            started_at=None,
            preemptions=job.preemptions + 1,
            waits_since=at,
        )
        self._planner.update_job(waiting, at)
        return True


@contextmanager
def _without_looking_for_cycles() -> Iterator[None]:
    """A replay makes no cycles, and to look for them among its many records takes a sixth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
