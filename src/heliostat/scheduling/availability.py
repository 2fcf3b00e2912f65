"""Future availability of resources, if running jobs use their full time limits; and bookings for blocked jobs."""

from dataclasses import dataclass

import numpy as np

from heliostat.scheduling.free_resources import (
    FreeResources,
    count_tasks_in_arrays,
    count_tasks_per_node,
    distribute_tasks,
)
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.keyed_array import Array, concatenate_rows
from heliostat.scheduling.node_table import NodeTable
from heliostat.scheduling.placement import JobPlacement, resource_rows
from heliostat.scheduling.planned_capacity import BookedCapacity, Capacity
from heliostat.scheduling.reservations import ReservationWindow
from heliostat.scheduling.snapshot import RUNNING_DTYPE, Snapshot


@dataclass(frozen=True, slots=True)
class Booking:
    """Start time and placement of a blocked job."""

    start: float
    placement: JobPlacement


def expected_ends(running: Array, policy_assumes: float, now: float) -> Array:
    """Expected end of each running row. For a job without a time limit, the assumed limit doubles whenever it is
    exceeded; a job in overtime is expected to run for the assumed limit from now on."""
    length = np.where(running["has_limit"], running["limit"], policy_assumes)
    age = now - running["started"]
    factor = np.exp2(np.floor(np.log2(np.maximum(age / length, 0.5)) + 1))
    length = np.where(running["has_limit"], length, length * factor)
    ends = np.maximum(running["started"] + length, now)
    in_overtime = running["overtime"] & running["has_limit"] & (age >= length)
    ends = np.where(in_overtime, now + policy_assumes, ends)
    return np.asarray(np.minimum(ends, now + running["stops_in"]))


@dataclass(slots=True)
class FutureAvailability:
    """Free resources now, and future releases: rows of RUNNING_DTYPE whose `limit` is the time of the release."""

    node_table: NodeTable
    free: FreeResources
    releases: Array
    reservation_windows: list[ReservationWindow]

    def find_earliest_booking(self, shape: JobShape, project: str, length: float) -> Booking | None:
        """The first time at which all tasks of such a job fit; None: never."""
        eligibility = self.node_table.eligibility_of(shape)
        windows = [window for window in self.reservation_windows if window.blocks_project(project)]
        best: Booking | None = None
        for kind in eligibility.device_kinds:
            result = _Steps(shape, kind, self, eligibility.eligible_up_nodes).first(shape, length, windows)
            if result and (best is None or result.start < best.start):
                best = result
        return best

    def add_booking(self, booking: Booking, shape: JobShape, length: float) -> None:
        """For later bookings, the resources are allocated from now until the end of this job."""
        rows = resource_rows(shape, booking.placement, self.node_table)
        self.free.add_rows(rows["node"], rows, -1)
        rows["limit"] = booking.start + length
        self.releases = concatenate_rows([self.releases, rows])


def build_availability(
    snapshot: Snapshot, capacity: Capacity, windows: list[ReservationWindow], ends: Array
) -> FutureAvailability:
    """The availability after the jobs that this plan has started so far."""
    rows = snapshot.running.copy()
    rows["limit"] = ends
    window_ends = [_window_end(window) for window in windows]
    shared = (
        [_shared_devices(snapshot, capacity, ends)]
        if snapshot.shared_device_use or capacity.shared_device_ends
        else []
    )
    releases = concatenate_rows([rows, *capacity.started_rows, *window_ends, *shared])
    return FutureAvailability(snapshot.node_table, capacity.free.copy(), releases, windows)


def _window_end(window: ReservationWindow) -> Array:
    """A release of nothing at the end of the reservation: a time at which jobs may fit."""
    rows = np.zeros(len(window.nodes), RUNNING_DTYPE)
    rows["node"], rows["kind"], rows["limit"] = window.nodes, -1, window.end
    return rows


def _shared_devices(snapshot: Snapshot, capacity: Capacity, ends: Array) -> Array:
    """Releases of shared devices: each is free when its last job has ended."""
    node_table, last = snapshot.node_table, capacity.shared_device_ends.copy()
    is_fractional = (snapshot.running["kind"] >= 0) & (snapshot.running["devices"] == 0)
    for job_id, end in zip(
        snapshot.running["job"][is_fractional].tolist(), ends[is_fractional].tolist(), strict=True
    ):
        for uuid in snapshot.jobs[job_id].devices:
            last[uuid] = max(last.get(uuid, 0.0), end)
    devices = [
        uuid for uuid in last if uuid in node_table.node_of_device and uuid not in node_table.unusable_devices
    ]
    rows = np.zeros(len(devices), RUNNING_DTYPE)
    rows["node"] = [node_table.node_of_device[uuid] for uuid in devices]
    rows["kind"] = [node_table.kind_of_device[uuid] for uuid in devices]
    rows["devices"], rows["limit"] = 1, [last[uuid] for uuid in devices]
    return rows


def book_capacity_for_job(booking: Booking, shape: JobShape, availability: FutureAvailability) -> BookedCapacity:
    """What remains free on its nodes after it and all earlier bookings have started."""
    placement, node_table, releases = booking.placement, availability.node_table, availability.releases
    remaining = availability.free.select_nodes(placement.nodes)
    index_of_node = {int(node): place for place, node in enumerate(placement.nodes)}
    on_its_nodes = np.zeros(len(node_table.nodes), bool)
    on_its_nodes[placement.nodes] = True
    chosen = releases[(releases["limit"] <= booking.start) & on_its_nodes[releases["node"]]]
    if len(chosen):
        remaining.add_rows(np.array([index_of_node[int(node)] for node in chosen["node"]]), chosen)
    remaining.add_rows(np.arange(len(placement.nodes)), resource_rows(shape, placement, node_table), -1)
    return BookedCapacity(booking.start, placement.nodes, remaining)


class _Steps:
    """How many tasks fit on each node after each of its releases."""

    def __init__(self, shape: JobShape, kind: int, availability: FutureAvailability, allowed: Array) -> None:
        free, releases = availability.free, availability.releases
        rows = np.lexsort((releases["limit"], releases["node"]))
        rows = rows[allowed[releases["node"][rows]]]
        self.node, self.at, self.kind = releases["node"][rows], releases["limit"][rows], kind
        is_first = np.ones(len(rows), bool)
        is_first[1:] = self.node[1:] != self.node[:-1]
        self._firsts = np.flatnonzero(is_first)
        self._group = np.cumsum(is_first) - 1
        gpus = None
        if kind >= 0:
            devices = np.where(releases["kind"][rows] == kind, releases["devices"][rows], 0)
            gpus = self._sum(devices) + free.gpus[self.node, kind]
        cpus = releases["cpus"][rows]
        self.task_counts = count_tasks_in_arrays(
            shape.task_request,
            self._sum(cpus) + free.cpus[self.node],
            self._sum(releases["memory"][rows]) + free.memory_mib[self.node],
            gpus,
            free.running_count[self.node] - self._sum((cpus > 0).astype(np.int64)),
        )
        self.now = np.where(allowed, count_tasks_per_node(shape.task_request, kind, free), 0)
        self._leftover = free.gpus.sum(axis=1)
        if shape.placement.layout == "spread" and shape.placement.tasks > 1:
            self.now, self.task_counts = np.minimum(self.now, 1), np.minimum(self.task_counts, 1)

    def first(self, shape: JobShape, length: float, windows: list[ReservationWindow]) -> Booking | None:
        if not len(self.at):
            return None
        if shape.placement.tasks == 1:
            task_counts = self.task_counts
            for window in windows:  # the job must end before the reservation or begin after it
                hit = (self.at < window.end) & (self.at + length > window.start) & np.isin(self.node, window.nodes)
                task_counts = np.where(hit, 0, task_counts)
            fitting = np.flatnonzero(task_counts > 0)
            if not len(fitting):
                return None
            row = fitting[np.argmin(self.at[fitting])]
            return Booking(
                float(self.at[row]), JobPlacement(self.node[row : row + 1], np.ones(1, np.int64), self.kind)
            )
        return self._first_gang(shape, length, windows)

    def _first_gang(self, shape: JobShape, length: float, windows: list[ReservationWindow]) -> Booking | None:
        """Tries all release times from the first at which enough would be free without reservations."""
        before = np.zeros_like(self.task_counts)
        before[1:] = self.task_counts[:-1]
        before[self._firsts] = self.now[self.node[self._firsts]]
        by_time = np.argsort(self.at, kind="stable")
        reached = self.now.sum() + np.cumsum((self.task_counts - before)[by_time])
        enough = by_time[reached >= shape.placement.tasks]
        for at in sorted(set(self.at[enough].tolist())):
            tasks = distribute_tasks(self._open_at(at, length, windows), shape, self._leftover)
            if tasks is not None:
                nodes = np.flatnonzero(tasks)
                return Booking(at, JobPlacement(nodes, tasks[nodes], self.kind))
        return None

    def _open_at(self, at: float, length: float, windows: list[ReservationWindow]) -> Array:
        """How many tasks fit on each node from `at` on for `length` seconds."""
        result = self.now.copy()
        past = np.flatnonzero(self.at <= at)
        result[self.node[past]] = self.task_counts[past]  # rows of a node are in order of time: the last one wins
        for window in windows:
            if at < window.end and at + length > window.start:
                result[window.nodes] = 0
        return result

    def _sum(self, amounts: Array) -> Array:
        """Cumulative sums within each node."""
        if not len(amounts):
            return amounts
        sums = np.cumsum(amounts)
        return np.asarray(sums - (sums[self._firsts] - amounts[self._firsts])[self._group])
