"""Free resources of the cluster while a plan is made: placement of jobs beside bookings, and allocation."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heliostat.models import Job, Resources, TaskPlacement
from heliostat.scheduling.free_resources import (
    FreeResources,
    count_tasks_in_arrays,
    count_tasks_per_node,
    distribute_tasks,
)
from heliostat.scheduling.job_shape import JobShape, TaskRequest
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.node_table import Eligibility, LargestFree, NodeTable
from heliostat.scheduling.placement import JobPlacement, place_tasks, resource_rows
from heliostat.scheduling.snapshot import PlannedStart, Snapshot

_TOLERANCE = 1e-9
_SMALLEST_FRACTION = 0.01
_BATCH_PAIRS = 2_000_000  # pairs of shape and node that are compared in one step


@dataclass(slots=True)
class BookedCapacity:
    """Resources on some nodes that are booked from a time on. Jobs that run past it can use only the remainder."""

    start: float
    nodes: Array
    remaining: FreeResources  # parallel to nodes
    exempt_project: str | None = None  # the project whose jobs may use the booked resources
    booked_devices: Array | None = None  # booked devices, parallel to nodes; None: all devices of the nodes

    def count_tasks(self, request: TaskRequest, kind: int) -> Array:
        """How many such tasks that run past its start fit on each of its nodes."""
        counts = count_tasks_per_node(request, kind, self.remaining)
        if request.is_fractional:  # each task may use a different device
            counts = np.minimum(counts, np.maximum(self.remaining.gpus[:, kind], 0))
        return counts


@dataclass(slots=True)
class _CachedCounts:
    """Tasks of a shape that fit on each node, after the first so many changes."""

    counts: Array
    change_count: int


class Capacity:
    """Free resources of all nodes; used for one plan only."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.node_table: NodeTable = snapshot.node_table
        self.free = _whole_devices(snapshot)
        self.bookings: list[BookedCapacity] = []
        self.started_rows: list[Array] = []  # rows of RUNNING_DTYPE for the jobs that this plan starts
        self.shared_device_ends: dict[str, float] = {}  # latest end of the fractions that this plan allocates
        self._held = snapshot.held_devices
        self._taken: set[str] = set()  # whole devices that this plan allocates
        self._shared_use = dict(snapshot.shared_device_use)
        self._shareable = {uuid for uuid in self._shared_use if self._has_free_fraction(uuid)}
        self._changed: list[int] = []  # nodes with new allocations, in order
        self._known: dict[tuple[JobShape, int], _CachedCounts] = {}
        self._leftover = _leftover(self.free)
        self._largest_free = (
            snapshot.largest_free
            if not (self._shared_use or self.node_table.unusable_devices)
            else self._compute_largest_free()
        )

    def _compute_largest_free(self) -> LargestFree:
        """An old value is at worst too large, so it is recomputed only after a job did not fit."""
        return LargestFree.from_free(self.node_table, self.free)

    def is_surely_full(self, shape: JobShape) -> bool:
        """Quick check: True means that no node has enough free; False proves nothing."""
        return not (shape.is_fractional and self._shared_use) and self._largest_free.is_too_small_for(
            shape, self.node_table
        )

    def may_fit(self, shapes: Sequence[JobShape]) -> Array:
        """By shape: False means that no node has enough free; True proves nothing."""
        if not self._shared_use and all(
            self._largest_free.is_too_small_for(shape, self.node_table) for shape in shapes
        ):
            return np.zeros(len(shapes), bool)
        result = prefilter_shapes(shapes, self.node_table, self.free)
        if self._shareable:
            result |= self._fit_on_shared_devices(shapes)
        return result

    def _fit_on_shared_devices(self, shapes: Sequence[JobShape]) -> Array:
        """By shape: whether a shared device has enough free for one of its tasks."""
        uuids = [uuid for uuid in self._shareable if uuid in self.node_table.node_of_device]
        nodes = np.array([self.node_table.node_of_device[uuid] for uuid in uuids], np.int64)
        remaining = np.array([1 + _TOLERANCE - self._shared_use[uuid] for uuid in uuids])
        cpus, memory = self.free.cpus[nodes], self.free.memory_mib[nodes]
        return np.array(
            [
                shape.is_fractional and _any_device_fits(shape.resources, remaining, cpus, memory)
                for shape in shapes
            ],
            bool,
        )

    def find_placement(self, shape: JobShape, project: str, end: float) -> JobPlacement | None:
        """A placement for a job that ends by `end` at the latest; None: it does not fit now."""
        eligibility = self.node_table.eligibility_of(shape)
        for kind in eligibility.device_kinds:
            if (
                shape.is_fractional
                and self._shared_use
                and (shared := self._place_on_shared_device(shape, kind, project, end))
            ):
                return shared
            task_counts = self._task_counts(shape, kind, eligibility.eligible_up_nodes)
            if self.bookings:
                task_counts = task_counts.copy()
                self.subtract_bookings(task_counts, shape, kind, project, end)
            placement = place_tasks(task_counts, shape, kind, self._leftover)
            if placement is not None:
                return placement
        self._largest_free = self._compute_largest_free()
        return None

    def allocate(self, job: Job, shape: JobShape, placement: JobPlacement, until: float) -> PlannedStart:
        """Allocate the resources and choose the devices of each task."""
        already_shared = set(self._shared_use) if shape.is_fractional else set()
        places = self._place_devices(shape, placement)
        rows = resource_rows(shape, placement, self.node_table)
        if shape.is_fractional:
            rows["devices"] = self._count_devices(places, placement, already_shared)
        self.free.add_rows(rows["node"], rows, -1)
        if shape.is_fractional:  # a device that a booking counts on is now held longer: count it as used
            rows["devices"] = self._count_devices(places, placement, set())
        for booking in self.bookings:
            if booking.start < until:
                _subtract_from_booking(booking, rows, job.project)
        rows["limit"] = until
        if shape.is_fractional:  # a shared device is free when its last job has ended: see shared_device_ends
            rows["devices"] = 0
            for uuid in (uuid for place in places for uuid in place.devices):
                self.shared_device_ends[uuid] = max(self.shared_device_ends.get(uuid, 0.0), until)
        self.started_rows.append(rows)
        self._changed += placement.nodes.tolist()
        self._leftover[placement.nodes] = _leftover(self.free.select_nodes(placement.nodes))
        kind = self.node_table.device_kinds[placement.device_kind].type if placement.device_kind >= 0 else None
        return PlannedStart(job, places, kind)

    def subtract_bookings(self, task_counts: Array, shape: JobShape, kind: int, project: str, end: float) -> None:
        """Reduce the task counts to what is not booked for others."""
        for booking in self.bookings:
            if booking.start < end and booking.exempt_project != project:
                remaining = booking.count_tasks(shape.task_request, kind)
                task_counts[booking.nodes] = np.minimum(task_counts[booking.nodes], remaining)

    def _task_counts(self, shape: JobShape, kind: int, allowed: Array) -> Array:
        """How many of its tasks fit on each node now. Cached, so callers must not modify it; only nodes with new
        allocations are counted again."""
        request = shape.task_request
        if shape.is_fractional and self._shared_use:
            return np.where(allowed, self.count_tasks(request, kind), 0)
        cached = self._known.get((shape, kind))
        if cached is None or len(self._changed) - cached.change_count > len(allowed):
            counts = np.where(allowed, self.count_tasks(request, kind), 0)
            cached = self._known[shape, kind] = _CachedCounts(counts, len(self._changed))
        elif cached.change_count < len(self._changed):
            nodes = np.array(self._changed[cached.change_count :])
            cached.counts[nodes] = np.where(
                allowed[nodes], count_tasks_per_node(request, kind, self.free.select_nodes(nodes)), 0
            )
            cached.change_count = len(self._changed)
        return cached.counts

    def count_tasks(self, request: TaskRequest, kind: int) -> Array:
        """How many such tasks fit on each node now, without regard to bookings. Fractions also fit on devices that
        are shared already."""
        free = self.free
        if not (request.is_fractional and self._shared_use):
            return count_tasks_per_node(request, kind, free)
        device_slots = free.gpus[:, kind] * request.tasks_per_device
        for uuid in self._shareable:
            if self._is_usable(uuid, kind):
                node = self.node_table.node_of_device[uuid]
                free_fraction = 1 + _TOLERANCE - self._shared_use[uuid]
                device_slots[..., node : node + 1] += np.int64(free_fraction / request.gpus)
        counts = count_tasks_in_arrays(request, free.cpus, free.memory_mib, None, free.running_count)
        return np.asarray(np.minimum(counts, device_slots))

    def _has_free_fraction(self, uuid: str) -> bool:
        return self._shared_use[uuid] <= 1 - _SMALLEST_FRACTION + _TOLERANCE

    def _is_usable(self, uuid: str, kind: int) -> bool:
        return self.node_table.kind_of_device.get(uuid) == kind and uuid not in self.node_table.unusable_devices

    def _place_on_shared_device(self, shape: JobShape, kind: int, project: str, end: float) -> JobPlacement | None:
        """The node of the fullest shared device that has enough free."""
        if shape.placement.exclusive or shape.placement.tasks > 1:
            return None
        open_nodes, requested = self.node_table.eligibility_of(shape).eligible_up_nodes, shape.resources.gpus
        for uuid in sorted(self._shareable, key=lambda uuid: (-self._shared_use[uuid], uuid)):
            if not self._is_usable(uuid, kind) or not open_nodes[self.node_table.node_of_device[uuid]]:
                continue
            node = self.node_table.node_of_device[uuid]
            if self._shared_use[uuid] + requested <= 1 + _TOLERANCE and self._has_other_resources(
                shape, node, project, end
            ):
                return JobPlacement(np.array([node]), np.array([1]), kind)
        return None

    def _has_other_resources(self, shape: JobShape, node: int, project: str, end: float) -> bool:
        requested, free = shape.resources, self.free
        if free.cpus[node] < requested.cpus or free.memory_mib[node] < requested.memory_mib:
            return False
        return not any(
            booking.start < end and node in booking.nodes and booking.exempt_project != project
            for booking in self.bookings
        )

    def _count_devices(
        self, places: tuple[TaskPlacement, ...], placement: JobPlacement, without: set[str]
    ) -> list[int]:
        """How many of these devices are on each node, except those of `without`."""
        devices = {uuid for place in places for uuid in place.devices} - without
        counts = Counter(self.node_table.node_of_device[uuid] for uuid in devices)
        return [counts[node] for node in placement.nodes.tolist()]

    def _place_devices(self, shape: JobShape, placement: JobPlacement) -> tuple[TaskPlacement, ...]:
        return tuple(
            TaskPlacement(
                self.node_table.nodes[node].name, self._take_devices(int(node), shape, placement.device_kind)
            )
            for node, tasks in zip(placement.nodes, placement.tasks_per_node, strict=True)
            for _ in range(tasks)
        )

    def _take_devices(self, node: int, shape: JobShape, kind: int) -> tuple[str, ...]:
        if kind < 0:
            return ()
        requested = shape.resources
        if shape.is_fractional:
            uuid = self._choose_shared_device(node, kind, requested.gpus)
            self._shared_use[uuid] = self._shared_use.get(uuid, 0.0) + requested.gpus
            (self._shareable.add if self._has_free_fraction(uuid) else self._shareable.discard)(uuid)
            return (uuid,)
        chosen = tuple(self._free_devices(node, kind)[: requested.device_count])
        self._taken.update(chosen)
        return chosen

    def _free_devices(self, node: int, kind: int) -> list[str]:
        uuids = [device.uuid for device in self.node_table.usable_devices(node, kind)]
        return [uuid for uuid in uuids if not self._is_taken(uuid)]

    def _is_taken(self, uuid: str) -> bool:
        return uuid in self._held or uuid in self._taken or uuid in self._shared_use

    def _choose_shared_device(self, node: int, kind: int, fraction: float) -> str:
        uuids = [device.uuid for device in self.node_table.usable_devices(node, kind)]
        shared = [uuid for uuid in uuids if self._shared_use.get(uuid, 1.0) + fraction <= 1 + _TOLERANCE]
        if shared:
            return max(shared, key=lambda uuid: self._shared_use[uuid])
        return self._free_devices(node, kind)[0]


def _any_device_fits(requested: Resources, remaining: Array, cpus: Array, memory: Array) -> bool:
    return bool(
        ((remaining >= requested.gpus) & (cpus >= requested.cpus) & (memory >= requested.memory_mib)).any()
    )


def _leftover(free: FreeResources) -> Array:
    """Rank of nodes, lowest preferred: few free GPUs first (none for jobs without GPUs), then few free cpus."""
    return np.asarray(free.gpus.sum(axis=1) * 100_000 + np.minimum(free.cpus, 99_999))


def _whole_devices(snapshot: Snapshot) -> FreeResources:
    """Free resources; shared devices count as allocated."""
    node_table, free = snapshot.node_table, snapshot.free.copy()
    for uuid in snapshot.shared_device_use:
        if uuid in node_table.node_of_device and uuid not in node_table.unusable_devices:
            free.gpus[node_table.node_of_device[uuid], node_table.kind_of_device[uuid]] -= 1
    return free


def is_feasible(shape: JobShape, node_table: NodeTable) -> bool:
    """Whether the nodes that are up could run it if they were empty."""
    result = node_table.feasibility_cache.get(shape)
    if result is None:
        eligibility, empty = node_table.eligibility_of(shape), node_table.total_resources()
        options = (
            np.where(eligibility.eligible_up_nodes, count_tasks_per_node(shape.task_request, kind, empty), 0)
            for kind in eligibility.device_kinds
        )
        result = node_table.feasibility_cache[shape] = any(
            distribute_tasks(option, shape, empty.cpus) is not None for option in options
        )
    return result


def _subtract_from_booking(booking: BookedCapacity, rows: Array, project: str) -> None:
    """Subtract these rows from the remainder. Jobs of the exempt project use up the booked devices first."""
    on_booked_nodes, places = np.nonzero(rows["node"][:, None] == booking.nodes)
    if not len(places):
        return
    rows = rows[on_booked_nodes]
    if booking.exempt_project == project:
        if booking.booked_devices is None:
            return
        from_booking = np.minimum(booking.booked_devices[places], rows["devices"])
        booking.booked_devices[places] -= from_booking
        rows["devices"] -= from_booking.astype(rows["devices"].dtype)
    booking.remaining.add_rows(places, rows, -1)


def prefilter_shapes(shapes: Sequence[JobShape], node_table: NodeTable, free: FreeResources) -> Array:
    """By shape: whether one of its tasks fits on an eligible node now."""
    result = np.zeros(len(shapes), bool)
    groups: defaultdict[tuple[int, bool], list[int]] = defaultdict(list)
    for place, shape in enumerate(shapes):
        groups[node_table.eligibility_of(shape).shape_group, shape.placement.exclusive].append(place)
    for (_, exclusive), places in groups.items():
        eligibility = node_table.eligibility_of(shapes[places[0]])
        result[places] = _fit_group([shapes[place] for place in places], eligibility, free, exclusive)
    return result


def _fit_group(shapes: list[JobShape], eligibility: Eligibility, free: FreeResources, exclusive: bool) -> Array:
    """The same for shapes with the same eligible nodes and kinds of device."""
    nodes = (
        eligibility.eligible_up_nodes & (free.running_count == 0) if exclusive else eligibility.eligible_up_nodes
    )
    cpus, memory, gpus = free.cpus[nodes], free.memory_mib[nodes], free.gpus[nodes]
    needs = np.array(
        [(s.resources.cpus, s.resources.memory_mib, s.resources.device_count) for s in shapes], np.int64
    )
    result = np.zeros(len(shapes), bool)
    step = max(1, _BATCH_PAIRS // max(len(cpus), 1))
    for first in range(0, len(shapes), step):
        batch = needs[first : first + step, :, None]
        enough = (cpus >= batch[:, 0]) & (memory >= batch[:, 1])
        for kind in eligibility.device_kinds:
            fits = enough if kind < 0 else enough & (gpus[:, kind] >= batch[:, 2])
            result[first : first + step] |= fits.any(axis=1)
    return result
