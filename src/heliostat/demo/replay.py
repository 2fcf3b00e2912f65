"""First come, first served over made-up nodes: when and where each job of a history ran.

Later jobs may pass one that does not fit now, but for one job that has waited for long the next node that can
hold it is kept free. Deliberately simple: it gives history a believable shape and is not the scheduler.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from heliostat.demo.jobs import DemoJob
from heliostat.engines.simulated.engine import EXIT_TERMINATED
from heliostat.models import EndCause, JobState, Node, Resources

BOOK_NODE_AFTER_SECONDS = 6 * 3600.0


def replay_first_come_first_served(
    jobs: Sequence[DemoJob], nodes: Sequence[Node], until: datetime
) -> list[DemoJob]:
    """What became of jobs, given in order of submission, by that time. No device is held by two at once."""
    queue = _Queue(nodes)
    for number, job in enumerate(jobs):
        queue.run_until(job.submitted_at)
        queue.submit(_Waiting(number, job))
    queue.run_until(until)
    return [_as_seen(queue.started.get(number, job), until) for number, job in enumerate(jobs)]


def determine_end(job: DemoJob) -> tuple[datetime, EndCause]:
    """When and why a job that started ends: the earliest of its own end, its limit and its user."""
    assert job.started_at is not None  # noqa: S101 - said by the contract
    own_cause = EndCause.OUT_OF_MEMORY if job.out_of_memory else EndCause.EXITED
    ends = [
        (job.started_at + timedelta(seconds=job.run_seconds), own_cause),
        (job.started_at + timedelta(seconds=job.time_limit_seconds), EndCause.TIMED_OUT),
    ]
    cancelled_at = _cancelled_at(job)
    if cancelled_at is not None:
        ends.append((cancelled_at, EndCause.STOPPED))
    return min(ends, key=lambda end: end[0])


def _cancelled_at(job: DemoJob) -> datetime | None:
    if job.cancel_after_seconds is None:
        return None
    return job.submitted_at + timedelta(seconds=job.cancel_after_seconds)


def _as_seen(job: DemoJob, now: datetime) -> DemoJob:
    if job.started_at is None:
        cancelled_at = _cancelled_at(job)
        if cancelled_at is None or cancelled_at > now:
            return job
        return replace(job, state=JobState.CANCELLED, ended_at=cancelled_at, exit_code=None)
    ended_at, cause = determine_end(job)
    if ended_at > now:
        return job
    is_own = cause in (EndCause.EXITED, EndCause.OUT_OF_MEMORY)
    exit_code = job.exit_code if is_own else EXIT_TERMINATED
    return replace(job, state=_state(cause, exit_code), cause=cause, ended_at=ended_at, exit_code=exit_code)


def _state(cause: EndCause, exit_code: int | None) -> JobState:
    if cause is EndCause.STOPPED:
        return JobState.CANCELLED
    if cause is EndCause.TIMED_OUT:
        return JobState.TIMED_OUT
    return JobState.COMPLETED if cause is EndCause.EXITED and exit_code == 0 else JobState.FAILED


@dataclass(slots=True, eq=False)
class _Place:
    """What is free of a node."""

    node: Node
    cpus: int
    memory_mib: int
    devices: list[str]
    kept_for: "_Waiting | None" = None

    def could_hold(self, wanted: Resources) -> bool:
        node = self.node
        return (
            wanted.gpus <= len(node.devices)
            and wanted.cpus <= node.cpus
            and wanted.memory_mib <= node.memory_mib
            and (wanted.gpu_type is None or not wanted.gpus or node.devices[0].type == wanted.gpu_type)
        )

    def can_hold(self, wanted: Resources) -> bool:
        return (
            wanted.gpus <= len(self.devices)
            and wanted.cpus <= self.cpus
            and wanted.memory_mib <= self.memory_mib
            and self.could_hold(wanted)
        )

    def take(self, wanted: Resources) -> tuple[str, ...]:
        self.cpus -= wanted.cpus
        self.memory_mib -= wanted.memory_mib
        taken = tuple(self.devices[: wanted.device_count])
        del self.devices[: wanted.device_count]
        return taken

    def give_back(self, job: DemoJob) -> None:
        self.cpus += job.resources.cpus
        self.memory_mib += job.resources.memory_mib
        self.devices.extend(job.devices)

    def leftover(self, wanted: Resources) -> tuple[int, int]:
        """Small is good: GPUs go where few stay unused, work without GPUs where there are none."""
        return len(self.devices) - wanted.device_count, self.cpus - wanted.cpus


@dataclass(slots=True, eq=False)
class _Waiting:
    number: int
    job: DemoJob
    kept: _Place | None = None

    def gave_up_by(self, now: datetime) -> bool:
        cancelled_at = _cancelled_at(self.job)
        return cancelled_at is not None and cancelled_at <= now

    def is_impatient(self, now: datetime) -> bool:
        return (now - self.job.submitted_at).total_seconds() > BOOK_NODE_AFTER_SECONDS


@dataclass(order=True, slots=True)
class _End:
    at: datetime
    number: int
    place: _Place = field(compare=False)
    job: DemoJob = field(compare=False)


class _Queue:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self.started: dict[int, DemoJob] = {}
        self._places = [_Place(n, n.cpus, n.memory_mib, [d.uuid for d in n.devices]) for n in nodes]
        self._freer: list[_Place] = []
        self._waiting: list[_Waiting] = []
        self._ends: list[_End] = []
        self._keeps_a_place = False

    def submit(self, new: _Waiting) -> None:
        wanted = new.job.resources
        fitting = [place for place in self._places if place.kept_for is None and place.can_hold(wanted)]
        if not fitting:
            self._waiting.append(new)
            return
        self._start(new, min(fitting, key=lambda place: place.leftover(wanted)), new.job.submitted_at)

    def run_until(self, now: datetime) -> None:
        while self._ends and self._ends[0].at <= now:
            end = heapq.heappop(self._ends)
            end.place.give_back(end.job)
            self._freer.append(end.place)
            self._drop_cancelled(end.at)
            while self._freer:
                self._fill(self._freer.pop(), end.at)

    def _fill(self, place: _Place, now: datetime) -> None:
        """Start what fits on a node that became freer."""
        misfits: set[Resources] = set()
        for waiting in self._waiting:
            wanted = waiting.job.resources
            if wanted in misfits or place.kept_for not in (None, waiting):
                continue
            if place.can_hold(wanted):
                self._start(waiting, place, now)
                continue
            misfits.add(wanted)
            if not self._keeps_a_place and waiting.is_impatient(now) and place.could_hold(wanted):
                self._keeps_a_place = True
                waiting.kept, place.kept_for = place, waiting
        self._waiting = [waiting for waiting in self._waiting if waiting.number not in self.started]

    def _drop_cancelled(self, now: datetime) -> None:
        for waiting in self._waiting:
            if waiting.gave_up_by(now):
                self._let_go(waiting)
        self._waiting = [waiting for waiting in self._waiting if not waiting.gave_up_by(now)]

    def _start(self, waiting: _Waiting, place: _Place, now: datetime) -> None:
        self._let_go(waiting)
        devices = place.take(waiting.job.resources)
        job = replace(waiting.job, state=JobState.RUNNING, started_at=now, node=place.node.name, devices=devices)
        self.started[waiting.number] = job
        ends_at, _ = determine_end(job)
        heapq.heappush(self._ends, _End(ends_at, waiting.number, place, job))

    def _let_go(self, waiting: _Waiting) -> None:
        if waiting.kept is not None:
            self._freer.append(waiting.kept)
            waiting.kept.kept_for = None
            waiting.kept = None
            self._keeps_a_place = False
