"""Who makes room for a blocked job: those that lose the least work, and those past their limit."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from heliostat.models import Job
from heliostat.scheduling.availability import Booking
from heliostat.scheduling.capacity import BookedCapacity, Capacity
from heliostat.scheduling.free_resources import FreeResources, count_tasks_per_node, distribute_tasks
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.placement import JobPlacement, resource_rows
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.snapshot import PlannedStop, Snapshot

_SOON = 60.0  # seconds: room that becomes free anyway is worth waiting for


@dataclass(frozen=True, slots=True)
class BlockedJob:
    """A job for which there is no room now; for the first of them some is booked and kept."""

    job: Job
    shape: JobShape
    limit_seconds: float
    booking: Booking | None = None
    booked_capacity: BookedCapacity | None = None


def select_jobs_to_stop(
    snapshot: Snapshot, policy: SchedulingPolicy, rooms: Capacity, blocked: list[BlockedJob], now: float
) -> tuple[PlannedStop, ...]:
    """For the first of the blocked, in their order; nobody is sent away for one that will fit without."""
    running = snapshot.running
    may_go = _may_go(running, policy, now)
    if not blocked or not may_go.any():
        return ()
    free = rooms.free.copy()
    leaving = running[np.isfinite(running["stops_in"])]
    free.add_rows(leaving["node"], leaving)
    rooms.bookings = [
        keep for keep in rooms.bookings if not any(keep is waiting.booked_capacity for waiting in blocked)
    ]
    stops: dict[int, PlannedStop] = {}
    for waiting in blocked:
        rank = policy.find_priority_class(waiting.job.priority_class).rank
        able = may_go & (is_in_overtime(running, now) | (running["rank"] < rank))
        able &= ~np.isin(running["job"], list(stops))
        search = _Search(waiting, rooms, free, now)
        for job_id in search.least_loss(running[able]):
            rows = running[running["job"] == job_id]
            free.add_rows(rows["node"], rows)
            stops[job_id] = _stop(snapshot.jobs[job_id], rows, waiting.job, now)
        if not search.reserve() and waiting.booked_capacity:
            rooms.bookings.append(waiting.booked_capacity)
    return tuple(stops.values())


def is_in_overtime(running: Array, now: float) -> Array:
    """Past a limit that it may pass while nobody waits."""
    return np.asarray(running["overtime"] & running["has_limit"] & (running["started"] + running["limit"] <= now))


def lost_device_seconds(rows: Array, now: float) -> Array:
    """Device-seconds since the last checkpoint, or since the start; a job without GPUs counts by its cpus."""
    since = np.where(np.isnan(rows["saved"]), rows["started"], np.maximum(rows["saved"], rows["started"]))
    size = np.maximum(rows["gpus"], rows["cpus"] * 0.02)
    return np.where(is_in_overtime(rows, now), 0.0, size * np.maximum(now - since, 0.0))


def _may_go(running: Array, policy: SchedulingPolicy, now: float) -> Array:
    may = is_in_overtime(running, now)
    if policy.preempts:
        may = may | (running["preemptible"] & (running["protected"] <= now))
    return np.asarray(may & ~np.isfinite(running["stops_in"]))


@dataclass(frozen=True, slots=True)
class _Search:
    """For those who make room for one blocked job, given what is free without them."""

    waiting: BlockedJob
    rooms: Capacity
    free: FreeResources
    now: float

    def least_loss(self, able: Array) -> list[int]:
        """Those to send away so that it fits; empty if it fits without, or not even then."""
        booking = self.waiting.booking
        is_soon = booking is not None and booking.start <= self.now + _SOON
        if is_soon or not len(able) or self._fits(self.free) or not self._fits(self._without(able)):
            return []
        loss: dict[int, float] = {}
        for job_id, lost in zip(able["job"].tolist(), lost_device_seconds(able, self.now).tolist(), strict=True):
            loss[job_id] = loss.get(job_id, 0.0) + lost
        ways = [self._alone(able, loss)]
        if self.waiting.shape.placement.tasks > 1:
            ways.append(self._cheapest(able, loss))
        else:
            for node in np.unique(able["node"]).tolist():
                here = able[np.isin(able["job"], able["job"][able["node"] == node])]
                ways.append(self._cheapest(here, loss))
        return min(
            (way for way in ways if way),
            key=lambda way: (sum(loss[job_id] for job_id in way), len(way)),
            default=[],
        )

    def _without(self, rows: Array) -> FreeResources:
        """What would be free if all of these went."""
        given = self.free.copy()
        given.add_rows(rows["node"], rows)
        return given

    def reserve(self) -> bool:
        """What was freed for it is not there for the next one. False: there is not enough for it."""
        for kind, tasks in self._ways(self.free):
            if tasks is not None:
                nodes = np.flatnonzero(tasks)
                rows = resource_rows(
                    self.waiting.shape, JobPlacement(nodes, tasks[nodes], kind), self.rooms.node_table
                )
                self.free.add_rows(rows["node"], rows, -1)
                return True
        return False

    def _alone(self, able: Array, loss: dict[int, float]) -> list[int]:
        """The one that loses least of those that free enough on their own."""
        for job_id in sorted(loss, key=lambda job_id: (loss[job_id], job_id)):
            if self._fits(self._without(able[able["job"] == job_id])):
                return [job_id]
        return []

    def _cheapest(self, able: Array, loss: dict[int, float]) -> list[int]:
        """Add by the work they lose until it fits, then spare those that are not needed, the dearest first."""
        given = self.free.copy()
        chosen: list[int] = []
        for job_id in sorted(set(able["job"].tolist()), key=lambda job_id: (loss[job_id], job_id)):
            rows = able[able["job"] == job_id]
            given.add_rows(rows["node"], rows)
            chosen.append(job_id)
            if self._fits(given):
                break
        else:
            return []
        for job_id in chosen[-2::-1]:
            rows = able[able["job"] == job_id]
            given.add_rows(rows["node"], rows, -1)
            if self._fits(given):
                chosen.remove(job_id)
            else:
                given.add_rows(rows["node"], rows)
        return chosen

    def _fits(self, free: FreeResources) -> bool:
        return any(tasks is not None for _, tasks in self._ways(free))

    def _ways(self, free: FreeResources) -> Iterator[tuple[int, Array | None]]:
        """For each kind of device it may use: how many of its tasks would go to each node. What is kept for others
        stays theirs also when somebody leaves: nobody is sent away in vain."""
        shape, project, until = self.waiting.shape, self.waiting.job.project, self.now + self.waiting.limit_seconds
        suitable = self.rooms.node_table.eligibility_of(shape)
        for kind in suitable.device_kinds:
            capacity = np.where(suitable.eligible_up_nodes, count_tasks_per_node(shape, kind, free), 0)
            self.rooms.subtract_bookings(capacity, shape, kind, project, until)
            yield kind, distribute_tasks(capacity, shape, free.cpus)


def _stop(job: Job, rows: Array, waiting: Job, now: float) -> PlannedStop:
    if is_in_overtime(rows, now).any():
        words = f"its time limit was over and job {waiting.id} waits for what it held"
        return PlannedStop(job, "overtime", words, waiting.id)
    words = f"made room for job {waiting.id} of class {waiting.priority_class}"
    return PlannedStop(job, "preempt", words, waiting.id)
