"""A first-come, first-served simulation that decides when and where each job of the demo history ran.

Jobs that fit may overtake one that does not; a node is booked for one job that has waited for long. Deliberately
simple: it only makes the history plausible and is not the scheduler.
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
    """The jobs, given in order of submission, with their state at that time. Two jobs never share a device."""
    queue = _Queue(nodes)
    for number, job in enumerate(jobs):
        queue.run_until(job.submitted_at)
        queue.submit(_Waiting(number, job))
    queue.run_until(until)
    return [_with_outcome(queue.started.get(number, job), until) for number, job in enumerate(jobs)]


def determine_end(job: DemoJob) -> tuple[datetime, EndCause]:
    """When and why a job that started ends: the earliest of its own end, its limit and its user."""
    assert job.started_at is not None  # noqa: S101 - required by the contract
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


def _with_outcome(job: DemoJob, now: datetime) -> DemoJob:
    if job.started_at is None:
        cancelled_at = _cancelled_at(job)
        if cancelled_at is None or cancelled_at > now:
            return job
        return replace(job, state=JobState.CANCELLED, ended_at=cancelled_at, exit_code=None)
    ended_at, cause = determine_end(job)
    if ended_at > now:
        return job
    ended_by_itself = cause in (EndCause.EXITED, EndCause.OUT_OF_MEMORY)
    exit_code = job.exit_code if ended_by_itself else EXIT_TERMINATED
    return replace(job, state=_state(cause, exit_code), cause=cause, ended_at=ended_at, exit_code=exit_code)


def _state(cause: EndCause, exit_code: int | None) -> JobState:
    if cause is EndCause.STOPPED:
        return JobState.CANCELLED
    if cause is EndCause.TIMED_OUT:
        return JobState.TIMED_OUT
    return JobState.COMPLETED if cause is EndCause.EXITED and exit_code == 0 else JobState.FAILED


@dataclass(slots=True, eq=False)
class _NodeCapacity:
    """The free resources of a node."""

    node: Node
    cpus: int
    memory_mib: int
    devices: list[str]
    booked_for: "_Waiting | None" = None

    def fits_when_empty(self, requested: Resources) -> bool:
        node = self.node
        return (
            requested.gpus <= len(node.devices)
            and requested.cpus <= node.cpus
            and requested.memory_mib <= node.memory_mib
            and (requested.gpu_type is None or not requested.gpus or node.devices[0].type == requested.gpu_type)
        )

    def fits_now(self, requested: Resources) -> bool:
        return (
            requested.gpus <= len(self.devices)
            and requested.cpus <= self.cpus
            and requested.memory_mib <= self.memory_mib
            and self.fits_when_empty(requested)
        )

    def allocate(self, requested: Resources) -> tuple[str, ...]:
        self.cpus -= requested.cpus
        self.memory_mib -= requested.memory_mib
        taken = tuple(self.devices[: requested.device_count])
        del self.devices[: requested.device_count]
        return taken

    def release(self, job: DemoJob) -> None:
        self.cpus += job.resources.cpus
        self.memory_mib += job.resources.memory_mib
        self.devices.extend(job.devices)

    def leftover(self, requested: Resources) -> tuple[int, int]:
        """Smaller is better: GPU jobs go where few GPUs stay unused, others to nodes without GPUs."""
        return len(self.devices) - requested.device_count, self.cpus - requested.cpus


@dataclass(slots=True, eq=False)
class _Waiting:
    number: int
    job: DemoJob
    booked: _NodeCapacity | None = None

    def is_cancelled(self, now: datetime) -> bool:
        cancelled_at = _cancelled_at(self.job)
        return cancelled_at is not None and cancelled_at <= now

    def may_book_node(self, now: datetime) -> bool:
        return (now - self.job.submitted_at).total_seconds() > BOOK_NODE_AFTER_SECONDS


@dataclass(order=True, slots=True)
class _End:
    at: datetime
    number: int
    capacity: _NodeCapacity = field(compare=False)
    job: DemoJob = field(compare=False)


class _Queue:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self.started: dict[int, DemoJob] = {}
        self._capacities = [_NodeCapacity(n, n.cpus, n.memory_mib, [d.uuid for d in n.devices]) for n in nodes]
        self._changed: list[_NodeCapacity] = []  # nodes with newly freed resources
        self._waiting: list[_Waiting] = []
        self._ends: list[_End] = []
        self._has_booking = False

    def submit(self, new: _Waiting) -> None:
        requested = new.job.resources
        fitting = [node for node in self._capacities if node.booked_for is None and node.fits_now(requested)]
        if not fitting:
            self._waiting.append(new)
            return
        self._start(new, min(fitting, key=lambda node: node.leftover(requested)), new.job.submitted_at)

    def run_until(self, now: datetime) -> None:
        while self._ends and self._ends[0].at <= now:
            end = heapq.heappop(self._ends)
            end.capacity.release(end.job)
            self._changed.append(end.capacity)
            self._drop_cancelled(end.at)
            while self._changed:
                self._fill(self._changed.pop(), end.at)

    def _fill(self, node: _NodeCapacity, now: datetime) -> None:
        """Start waiting jobs that fit on a node with newly freed resources."""
        misfits: set[Resources] = set()
        for waiting in self._waiting:
            requested = waiting.job.resources
            if requested in misfits or node.booked_for not in (None, waiting):
                continue
            if node.fits_now(requested):
                self._start(waiting, node, now)
                continue
            misfits.add(requested)
            if not self._has_booking and waiting.may_book_node(now) and node.fits_when_empty(requested):
                self._has_booking = True
                waiting.booked, node.booked_for = node, waiting
        self._waiting = [waiting for waiting in self._waiting if waiting.number not in self.started]

    def _drop_cancelled(self, now: datetime) -> None:
        for waiting in self._waiting:
            if waiting.is_cancelled(now):
                self._release_booking(waiting)
        self._waiting = [waiting for waiting in self._waiting if not waiting.is_cancelled(now)]

    def _start(self, waiting: _Waiting, node: _NodeCapacity, now: datetime) -> None:
        self._release_booking(waiting)
        devices = node.allocate(waiting.job.resources)
        job = replace(waiting.job, state=JobState.RUNNING, started_at=now, node=node.node.name, devices=devices)
        self.started[waiting.number] = job
        ends_at, _ = determine_end(job)
        heapq.heappush(self._ends, _End(ends_at, waiting.number, node, job))

    def _release_booking(self, waiting: _Waiting) -> None:
        if waiting.booked is not None:
            self._changed.append(waiting.booked)
            waiting.booked.booked_for = None
            waiting.booked = None
            self._has_booking = False
