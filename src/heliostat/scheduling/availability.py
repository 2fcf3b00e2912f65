"""When room becomes free, if running jobs take as long as they may: for those who are blocked."""

from dataclasses import dataclass

import numpy as np

from heliostat.scheduling.capacity import BookedCapacity, Capacity
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
from heliostat.scheduling.reservations import ReservationWindow
from heliostat.scheduling.snapshot import RUNNING_DTYPE, Snapshot


@dataclass(frozen=True, slots=True)
class Booking:
    """When and where a blocked job can start."""

    start: float
    placement: JobPlacement


def expected_ends(running: Array, policy_assumes: float, now: float) -> Array:
    """When each running row gives back what it holds. One without a limit that has outlived what we assumed is
    thought to take as long again; one in overtime, as long as we assume of those without a limit."""
    length = np.where(running["has_limit"], running["limit"], policy_assumes)
    age = now - running["started"]
    again = np.exp2(np.floor(np.log2(np.maximum(age / length, 0.5)) + 1))
    length = np.where(running["has_limit"], length, length * again)
    ends = np.maximum(running["started"] + length, now)
    in_overtime = running["overtime"] & running["has_limit"] & (age >= length)
    ends = np.where(in_overtime, now + policy_assumes, ends)
    return np.asarray(np.minimum(ends, now + running["stops_in"]))


@dataclass(slots=True)
class FutureAvailability:
    """What is free now, and what is given back when: rows of RUNNING whose `limit` is that time."""

    node_table: NodeTable
    free: FreeResources
    releases: Array
    reservation_windows: list[ReservationWindow]

    def find_earliest_booking(self, shape: JobShape, project: str, length: float) -> Booking | None:
        """The first time at which all tasks of such a job have room; None: never."""
        suitable = self.node_table.eligibility_of(shape)
        windows = [window for window in self.reservation_windows if window.blocks_project(project)]
        best: Booking | None = None
        for kind in suitable.device_kinds:
            found = _Steps(shape, kind, self, suitable.eligible_up_nodes).first(shape, length, windows)
            if found and (best is None or found.start < best.start):
                best = found
        return best

    def add_booking(self, booking: Booking, shape: JobShape, length: float) -> None:
        """Those who are booked later find that this room is taken from now on until the end of this job."""
        rows = resource_rows(shape, booking.placement, self.node_table)
        self.free.add_rows(rows["node"], rows, -1)
        rows["limit"] = booking.start + length
        self.releases = concatenate_rows([self.releases, rows])


def build_availability(
    snapshot: Snapshot, rooms: Capacity, windows: list[ReservationWindow], ends: Array
) -> FutureAvailability:
    """As it is after what this plan has started so far."""
    rows = snapshot.running.copy()
    rows["limit"] = ends
    openings = [_opening(window) for window in windows]
    shared = (
        [_shared_devices(snapshot, rooms, ends)] if snapshot.shared_device_use or rooms.shared_device_ends else []
    )
    releases = concatenate_rows([rows, *rooms.started_rows, *openings, *shared])
    return FutureAvailability(snapshot.node_table, rooms.free.copy(), releases, windows)


def _opening(window: ReservationWindow) -> Array:
    """Its end gives back nothing, but is a time at which to look again."""
    rows = np.zeros(len(window.nodes), RUNNING_DTYPE)
    rows["node"], rows["kind"], rows["limit"] = window.nodes, -1, window.end
    return rows


def _shared_devices(snapshot: Snapshot, rooms: Capacity, ends: Array) -> Array:
    """A shared device is free when the last of those on it has ended."""
    machines, last = snapshot.node_table, rooms.shared_device_ends.copy()
    in_parts = (snapshot.running["kind"] >= 0) & (snapshot.running["devices"] == 0)
    for job_id, end in zip(snapshot.running["job"][in_parts].tolist(), ends[in_parts].tolist(), strict=True):
        for uuid in snapshot.jobs[job_id].devices:
            last[uuid] = max(last.get(uuid, 0.0), end)
    known = [uuid for uuid in last if uuid in machines.node_of_device and uuid not in machines.unusable_devices]
    rows = np.zeros(len(known), RUNNING_DTYPE)
    rows["node"] = [machines.node_of_device[uuid] for uuid in known]
    rows["kind"] = [machines.kind_of_device[uuid] for uuid in known]
    rows["devices"], rows["limit"] = 1, [last[uuid] for uuid in known]
    return rows


def book_capacity_for_job(booking: Booking, shape: JobShape, horizon: FutureAvailability) -> BookedCapacity:
    """What is left on its nodes once it has started, also of what is booked for those before it."""
    fit, machines, releases = booking.placement, horizon.node_table, horizon.releases
    left = horizon.free.select_nodes(fit.nodes)
    where = {int(node): place for place, node in enumerate(fit.nodes)}
    mine = np.zeros(len(machines.nodes), bool)
    mine[fit.nodes] = True
    chosen = releases[(releases["limit"] <= booking.start) & mine[releases["node"]]]
    if len(chosen):
        left.add_rows(np.array([where[int(node)] for node in chosen["node"]]), chosen)
    left.add_rows(np.arange(len(fit.nodes)), resource_rows(shape, fit, machines), -1)
    return BookedCapacity(booking.start, fit.nodes, left)


class _Steps:
    """How many tasks each node could take after each of the releases on it."""

    def __init__(self, shape: JobShape, kind: int, horizon: FutureAvailability, allowed: Array) -> None:
        free, releases = horizon.free, horizon.releases
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
        self.capacity = count_tasks_in_arrays(
            shape,
            self._sum(cpus) + free.cpus[self.node],
            self._sum(releases["memory"][rows]) + free.memory_mib[self.node],
            gpus,
            free.running_count[self.node] - self._sum((cpus > 0).astype(np.int64)),
        )
        self.now = np.where(allowed, count_tasks_per_node(shape, kind, free), 0)
        self._leftover = free.gpus.sum(axis=1)
        if shape.placement.layout == "spread" and shape.placement.tasks > 1:
            self.now, self.capacity = np.minimum(self.now, 1), np.minimum(self.capacity, 1)

    def first(self, shape: JobShape, length: float, windows: list[ReservationWindow]) -> Booking | None:
        if not len(self.at):
            return None
        if shape.placement.tasks == 1:
            capacity = self.capacity
            for window in windows:  # it must be over before, or begin after
                hit = (self.at < window.end) & (self.at + length > window.start) & np.isin(self.node, window.nodes)
                capacity = np.where(hit, 0, capacity)
            able = np.flatnonzero(capacity > 0)
            if not len(able):
                return None
            row = able[np.argmin(self.at[able])]
            return Booking(
                float(self.at[row]), JobPlacement(self.node[row : row + 1], np.ones(1, np.int64), self.kind)
            )
        return self._first_gang(shape, length, windows)

    def _first_gang(self, shape: JobShape, length: float, windows: list[ReservationWindow]) -> Booking | None:
        """Windows close some nodes at some times: from the first time at which there would be enough without them,
        one after the other is tried."""
        before = np.zeros_like(self.capacity)
        before[1:] = self.capacity[:-1]
        before[self._firsts] = self.now[self.node[self._firsts]]
        by_time = np.argsort(self.at, kind="stable")
        reached = self.now.sum() + np.cumsum((self.capacity - before)[by_time])
        enough = by_time[reached >= shape.placement.tasks]
        for at in sorted(set(self.at[enough].tolist())):
            tasks = distribute_tasks(self._open_at(at, length, windows), shape, self._leftover)
            if tasks is not None:
                nodes = np.flatnonzero(tasks)
                return Booking(at, JobPlacement(nodes, tasks[nodes], self.kind))
        return None

    def _open_at(self, at: float, length: float, windows: list[ReservationWindow]) -> Array:
        """How many tasks each node could take from then on for so long."""
        found = self.now.copy()
        past = np.flatnonzero(self.at <= at)
        found[self.node[past]] = self.capacity[past]  # rows of a node are in order of time: the last one stays
        for window in windows:
            if at < window.end and at + length > window.start:
                found[window.nodes] = 0
        return found

    def _sum(self, amounts: Array) -> Array:
        """Running sums, each node from its first row on."""
        if not len(amounts):
            return amounts
        sums = np.cumsum(amounts)
        return np.asarray(sums - (sums[self._firsts] - amounts[self._firsts])[self._group])
