"""Preemption: which running jobs to stop for a blocked job, by lost work; jobs in overtime come first."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from heliostat.models import Job
from heliostat.scheduling.availability import Booking
from heliostat.scheduling.free_resources import FreeResources, count_tasks_per_node, distribute_tasks
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.placement import JobPlacement, resource_rows
from heliostat.scheduling.planned_capacity import BookedCapacity, Capacity
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.snapshot import PlannedStop, Snapshot

_SOON = 60.0  # seconds: no preemption for resources that become free within this time


@dataclass(frozen=True, slots=True)
class BlockedJob:
    """A job that does not fit now; the first ones have a booking."""

    job: Job
    shape: JobShape
    limit_seconds: float
    booking: Booking | None = None
    booked_capacity: BookedCapacity | None = None


def select_jobs_to_stop(
    snapshot: Snapshot, policy: SchedulingPolicy, capacity: Capacity, blocked: list[BlockedJob], now: float
) -> tuple[PlannedStop, ...]:
    """Running jobs to stop for the blocked jobs, in queue order. None is stopped for a job that fits without."""
    running = snapshot.running
    stoppable = _find_stoppable(running, policy, now)
    if not blocked or not stoppable.any():
        return ()
    freed = _FreedResources.of_capacity(capacity, snapshot)
    for job_id in np.unique(running["job"][np.isfinite(running["stops_in"])]).tolist():
        freed.stop(job_id, running[running["job"] == job_id])
    capacity.bookings = [
        booking
        for booking in capacity.bookings
        if not any(booking is waiting.booked_capacity for waiting in blocked)
    ]
    stops: dict[int, PlannedStop] = {}
    for waiting in blocked:
        rank = policy.find_priority_class(waiting.job.priority_class).rank
        candidates = stoppable & (is_in_overtime(running, now) | (running["rank"] < rank))
        candidates &= ~np.isin(running["job"], list(stops))
        search = _Search(waiting, capacity, freed, now)
        for job_id in search.least_loss(running[candidates]):
            rows = running[running["job"] == job_id]
            freed.stop(job_id, rows)
            stops[job_id] = _stop(snapshot.jobs[job_id], rows, waiting.job, now)
        if not search.reserve() and waiting.booked_capacity:
            capacity.bookings.append(waiting.booked_capacity)
    return tuple(stops.values())


def is_in_overtime(running: Array, now: float) -> Array:
    """Past a time limit that the job may exceed while no other job needs the resources."""
    return np.asarray(running["overtime"] & running["has_limit"] & (running["started"] + running["limit"] <= now))


def lost_device_seconds(rows: Array, now: float) -> Array:
    """Device-seconds since the last checkpoint or the start; jobs without GPUs count by their cpus."""
    since = np.where(np.isnan(rows["saved"]), rows["started"], np.maximum(rows["saved"], rows["started"]))
    size = np.maximum(rows["gpus"], rows["cpus"] * 0.02)
    return np.where(is_in_overtime(rows, now), 0.0, size * np.maximum(now - since, 0.0))


def _find_stoppable(running: Array, policy: SchedulingPolicy, now: float) -> Array:
    may = is_in_overtime(running, now)
    if policy.preempts:
        may = may | (running["preemptible"] & (running["protected"] <= now))
    return np.asarray(may & ~np.isfinite(running["stops_in"]))


@dataclass(frozen=True, slots=True)
class _FreedResources:
    """Free resources while jobs are stopped one by one. A shared device is free when its last job has stopped."""

    free: FreeResources
    shared_devices: Mapping[int, tuple[tuple[str, int, int], ...]]  # by job: uuid, node and kind
    users: Counter[str]  # number of jobs on each shared device

    @classmethod
    def of_capacity(cls, capacity: Capacity, snapshot: Snapshot) -> "_FreedResources":
        table = snapshot.node_table
        shared = {
            job_id: tuple(
                (uuid, table.node_of_device[uuid], table.kind_of_device[uuid])
                for uuid in set(snapshot.jobs[job_id].devices)
                if uuid in snapshot.shared_device_use and uuid in table.node_of_device
            )
            for job_id in (np.unique(snapshot.running["job"]).tolist() if snapshot.shared_device_use else ())
        }
        users = Counter(uuid for devices in shared.values() for uuid, _, _ in devices)
        users.update([*capacity.shared_device_ends, *table.unusable_devices])  # these do not become free
        return cls(capacity.free.copy(), shared, users)

    def copy(self) -> "_FreedResources":
        return _FreedResources(self.free.copy(), self.shared_devices, self.users.copy())

    def stop(self, job_id: int, rows: Array) -> None:
        self.free.add_rows(rows["node"], rows)
        for uuid, node, kind in self.shared_devices.get(job_id, ()):
            self.users[uuid] -= 1
            self.free.gpus[node, kind] += self.users[uuid] == 0

    def keep(self, job_id: int, rows: Array) -> None:
        """The opposite of `stop`."""
        self.free.add_rows(rows["node"], rows, -1)
        for uuid, node, kind in self.shared_devices.get(job_id, ()):
            self.free.gpus[node, kind] -= self.users[uuid] == 0
            self.users[uuid] += 1


@dataclass(frozen=True, slots=True)
class _Search:
    """Search for the jobs to stop for one blocked job."""

    waiting: BlockedJob
    capacity: Capacity
    freed: _FreedResources
    now: float

    def least_loss(self, candidates: Array) -> list[int]:
        """Jobs to stop so that the blocked job fits; empty if it fits already or cannot fit."""
        own_booking = self.waiting.booking
        is_soon = own_booking is not None and own_booking.start <= self.now + _SOON
        if (
            is_soon
            or not len(candidates)
            or self._fits(self.freed.free)
            or not self._fits(self._free_without(candidates))
        ):
            return []
        loss: dict[int, float] = {}
        for job_id, lost in zip(
            candidates["job"].tolist(), lost_device_seconds(candidates, self.now).tolist(), strict=True
        ):
            loss[job_id] = loss.get(job_id, 0.0) + lost
        options = [self._cheapest_single(candidates, loss)]
        if self.waiting.shape.placement.tasks > 1:
            options.append(self._cheapest(candidates, loss))
        else:
            for node in np.unique(candidates["node"]).tolist():
                here = candidates[np.isin(candidates["job"], candidates["job"][candidates["node"] == node])]
                options.append(self._cheapest(here, loss))
        return min(
            (option for option in options if option),
            key=lambda option: (sum(loss[job_id] for job_id in option), len(option)),
            default=[],
        )

    def _free_without(self, rows: Array) -> FreeResources:
        """Free resources if all these jobs stopped."""
        freed = self.freed.copy()
        for job_id in np.unique(rows["job"]).tolist():
            freed.stop(job_id, rows[rows["job"] == job_id])
        return freed.free

    def reserve(self) -> bool:
        """Take the freed resources, so that the next blocked job does not use them. False: they do not suffice."""
        for kind, tasks in self._distributions(self.freed.free):
            if tasks is not None:
                nodes = np.flatnonzero(tasks)
                rows = resource_rows(
                    self.waiting.shape, JobPlacement(nodes, tasks[nodes], kind), self.capacity.node_table
                )
                self.freed.free.add_rows(rows["node"], rows, -1)
                return True
        return False

    def _cheapest_single(self, candidates: Array, loss: dict[int, float]) -> list[int]:
        """The single job with the least lost work that frees enough."""
        for job_id in sorted(loss, key=lambda job_id: (loss[job_id], job_id)):
            if self._fits(self._free_without(candidates[candidates["job"] == job_id])):
                return [job_id]
        return []

    def _cheapest(self, candidates: Array, loss: dict[int, float]) -> list[int]:
        """Add jobs by lost work until the blocked job fits, then remove unneeded ones, the most costly first."""
        freed = self.freed.copy()
        chosen: list[int] = []
        for job_id in sorted(set(candidates["job"].tolist()), key=lambda job_id: (loss[job_id], job_id)):
            rows = candidates[candidates["job"] == job_id]
            freed.stop(job_id, rows)
            chosen.append(job_id)
            if self._fits(freed.free):
                break
        else:
            return []
        for job_id in chosen[-2::-1]:
            rows = candidates[candidates["job"] == job_id]
            freed.keep(job_id, rows)
            if self._fits(freed.free):
                chosen.remove(job_id)
            else:
                freed.stop(job_id, rows)
        return chosen

    def _fits(self, free: FreeResources) -> bool:
        return any(tasks is not None for _, tasks in self._distributions(free))

    def _distributions(self, free: FreeResources) -> Iterator[tuple[int, Array | None]]:
        """For each kind of device: the tasks per node, or None. Bookings and reservations of others still apply,
        so that no job is stopped in vain."""
        shape, project, until = self.waiting.shape, self.waiting.job.project, self.now + self.waiting.limit_seconds
        eligibility = self.capacity.node_table.eligibility_of(shape)
        for kind in eligibility.device_kinds:
            counts = count_tasks_per_node(shape.task_request, kind, free)
            task_counts = np.where(eligibility.eligible_up_nodes, counts, 0)
            self.capacity.subtract_bookings(task_counts, shape, kind, project, until)
            yield kind, distribute_tasks(task_counts, shape, free.cpus)


def _stop(job: Job, rows: Array, waiting: Job, now: float) -> PlannedStop:
    if is_in_overtime(rows, now).any():
        message = f"time limit reached, and job {waiting.id} needs its resources"
        return PlannedStop(job, "overtime", message, waiting.id)
    message = f"job {waiting.id} of class {waiting.priority_class} needs its resources"
    return PlannedStop(job, "preempt", message, waiting.id)
