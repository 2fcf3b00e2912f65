"""A small simulation over time: jobs arrive, plans are applied at once, jobs end."""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from heliostat.models import Job, JobState
from heliostat.scheduling.plan import plan
from heliostat.scheduling.queue_state import QueueState
from heliostat.scheduling.snapshot import Plan, PlannedStart, PlannedStop
from unit.scheduling.builders import NOW

Takes = Callable[[Job], float]
"""The actual run time of a job in seconds."""


def full_time_limit(job: Job) -> float:
    return float(job.time_limit_seconds or 3600)


@dataclass
class Simulation:
    """`plans` holds all plans with their times."""

    board: QueueState
    takes: Takes = full_time_limit
    now: datetime = NOW
    started_at: dict[int, datetime] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    plans: list[tuple[datetime, Plan]] = field(default_factory=list)
    _events: list[tuple[datetime, int, int, Job]] = field(default_factory=list)
    _number: int = 0

    def arrive(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self._at(job.submitted_at, job)

    def run(self, until: datetime) -> None:
        """Advance until then, or until nothing more happens."""
        for job in list(self.board.jobs.values()):
            if job.state is JobState.RUNNING and job.started_at is not None:
                self._at(job.started_at + timedelta(seconds=self.takes(job)), _ended(job))
        self._at(self.now, _WAKE_UP)
        while self._events and self._events[0][0] <= until:
            self.now = max(self.now, self._events[0][0])
            while self._events and self._events[0][0] <= self.now:
                self._happen(heapq.heappop(self._events)[3])
            self._plan()

    def _happen(self, job: Job) -> None:
        known = self.board.jobs.get(job.id)
        if job.is_terminal:
            if known is None or known.attempt != job.attempt or known.state is not JobState.RUNNING:
                return
            self.ended.add(job.id)
        if job.kind != "wake":
            self.board.update_job(job, self.now)

    def _plan(self) -> None:
        made = plan(self.board.snapshot(self.now), self.board.policy, self.now)
        self.plans.append((self.now, made))
        self.board.update_bookings(made, self.now)
        for start in made.starts:
            self._start(start)
        for stop in made.stops:
            self._stop(stop)
        if made.wake_at is not None:
            self._at(made.wake_at, _WAKE_UP)

    def _start(self, start: PlannedStart) -> None:
        several = start.places if len(start.places) > 1 else ()
        job = replace(
            start.job,
            state=JobState.RUNNING,
            started_at=self.now,
            attempt=start.job.attempt + 1,
            node=start.node,
            devices=start.devices,
            places=several,
        )
        self.started_at.setdefault(job.id, self.now)
        self.board.update_job(job, self.now)
        self._at(self.now + timedelta(seconds=self.takes(job)), _ended(job))

    def _stop(self, stop: PlannedStop) -> None:
        """The job stops at once: it returns to the queue, or ends."""
        if stop.kind == "overtime":
            self._happen(_ended(stop.job))
            return
        again = replace(stop.job, state=JobState.PENDING, node=None, devices=(), places=(), started_at=None)
        again = replace(again, preemptions=again.preemptions + 1)
        self.board.update_job(again, self.now)
        self._at(self.now, _WAKE_UP)

    def _at(self, time: datetime, job: Job) -> None:
        self._number += 1
        heapq.heappush(self._events, (time, self._number, job.id, job))


def _ended(job: Job) -> Job:
    return replace(job, state=JobState.COMPLETED)


_WAKE_UP = Job(0, "wake", "", JobState.COMPLETED, "", "", "", None, None, NOW)  # type: ignore[arg-type]
