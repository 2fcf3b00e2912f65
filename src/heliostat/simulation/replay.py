"""Replay of one workload under one policy: a discrete-event simulation of submissions, starts and ends."""

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

_REPORT_EVERY = 200  # ended jobs
_MAX_IDLE_SECONDS = 5 * 366 * 86400.0  # longer than reservations and months last: what still waits never starts


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
    """Receives every change of a job and decides which jobs start and stop."""

    def update_job(self, job: Job, now: datetime) -> None: ...
    def make_decision(self, now: datetime) -> PlanDecision: ...


class AttemptSpan(NamedTuple):
    """One attempt of a job; times are in seconds since the first submission."""

    job_index: int  # in the workload
    started_seconds: float
    ended_seconds: float
    lost_seconds: float  # work lost by a preemption
    nodes: tuple[str, ...] = ()  # of its tasks


EndedJobsCallback = Callable[[int], None]
"""Called with the number of jobs that have ended."""


def replay(
    workload: Workload,
    planner: Planner,
    *,
    checkpoint_seconds: float | None = None,
    report_progress: EndedJobsCallback | None = None,
) -> list[AttemptSpan]:
    """All attempts in the order of their ends. A job that the planner never starts has none."""
    return _Replay(workload, planner, checkpoint_seconds, report_progress or (lambda ended_count: None)).run()


class _Replay:
    def __init__(
        self,
        workload: Workload,
        planner: Planner,
        checkpoint_seconds: float | None,
        report_progress: EndedJobsCallback,
    ) -> None:
        self._workload, self._planner = workload, planner
        self._checkpoint_seconds, self._report_progress = checkpoint_seconds, report_progress
        self._origin = workload.jobs[0].submitted_at if workload.jobs else datetime.min
        self._arrived = 0
        self._ended_count = 0
        self._ends: list[tuple[float, int, int]] = []  # heap: time, job, attempt
        self._running: dict[int, tuple[Job, float]] = {}  # by job: the running job, its start
        self._done = [0.0] * len(workload.jobs)  # seconds of work saved in checkpoints
        self._spans: list[AttemptSpan] = []

    def run(self) -> list[AttemptSpan]:
        wake, last_event = math.inf, 0.0
        with _without_garbage_collection():
            while (now := min(event := self._next_event(), wake)) < math.inf:
                if event < math.inf:
                    last_event = now
                elif now > last_event + _MAX_IDLE_SECONDS:
                    break
                wake = self._process_time(now)
        self._report_progress(self._ended_count)
        return self._spans

    def _process_time(self, now: float) -> float:
        """Handle all events of one time and apply the plan; returns the time at which the planner wakes up."""
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

    def _next_event(self) -> float:
        return min(self._next_arrival(), self._next_end())

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
            _, index, _ = heapq.heappop(self._ends)
            job, started = self._running.pop(index)
            self._spans.append(AttemptSpan(index, started, now, 0.0, _nodes_of(job)))
            self._planner.update_job(replace(job, state=JobState.COMPLETED, ended_at=at, exit_code=0), at)
            self._ended_count += 1
            if self._ended_count % _REPORT_EVERY == 0:
                self._report_progress(self._ended_count)

    def _start(self, start: ReplayStart, now: float, at: datetime) -> None:
        index = start.job.id - 1
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
        self._running[index] = (job, now)
        remaining = self._workload.run_seconds[index] - self._done[index]
        heapq.heappush(self._ends, (round(now + remaining, 6), index, job.attempt))
        self._planner.update_job(job, at)

    def _stop(self, stop: ReplayStop, now: float, at: datetime) -> bool:
        """Return a preempted job to the queue; work since its last checkpoint is lost."""
        index = stop.job.id - 1
        if stop.kind != "preempt" or index not in self._running:
            return False
        job, started = self._running.pop(index)
        interval = self._checkpoint_seconds
        saved = (now - started) // interval * interval if interval else 0.0
        self._done[index] += saved
        self._spans.append(AttemptSpan(index, started, now, now - started - saved, _nodes_of(job)))
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


def _nodes_of(running: Job) -> tuple[str, ...]:
    return tuple(dict.fromkeys(place.node for place in running.task_placements))


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A replay creates no reference cycles, and the garbage collector would take a sixth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
