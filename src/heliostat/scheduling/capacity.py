"""The free room of the whole cluster while a plan is made: who fits where until when, and handing it out."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heliostat.models import Job, Resources, TaskPlacement
from heliostat.scheduling.feasibility import fractions_per_device
from heliostat.scheduling.free_resources import (
    FreeResources,
    count_tasks_in_arrays,
    count_tasks_per_node,
    distribute_tasks,
)
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.node_table import Eligibility, LargestFree, NodeTable
from heliostat.scheduling.placement import JobPlacement, place_tasks, resource_rows
from heliostat.scheduling.snapshot import PlannedStart, Snapshot

_NEARLY = 1e-9
_SMALLEST_PART = 0.01
_AT_ONCE = 2_000_000  # pairs of shape and node: more are looked at in pieces


@dataclass(slots=True)
class BookedCapacity:
    """Room on some nodes that is kept from a time on: jobs that run longer find only what is left of them."""

    start: float
    nodes: Array
    remaining: FreeResources  # parallel to nodes
    exempt_project: str | None = None  # whose jobs it does not concern
    booked_devices: Array | None = (
        None  # how many devices are kept for them, parallel to nodes; None: all there are
    )


@dataclass(slots=True)
class _Capacity:
    """How many tasks of a shape each node could take when so many changes had been seen."""

    counts: Array
    seen: int


class Capacity:
    """Lives no longer than the plan."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.node_table: NodeTable = snapshot.node_table
        self.free = _whole_devices(snapshot)
        self.bookings: list[BookedCapacity] = []
        self.started_rows: list[Array] = []  # rows of RUNNING for what this plan starts
        self.shared_device_ends: dict[str, float] = {}  # until when it gives parts of these devices away
        self._held = snapshot.held_devices
        self._taken: set[str] = set()  # whole devices that this plan hands out
        self._parts = dict(snapshot.shared_device_use)
        self._roomy = {uuid for uuid in self._parts if self._has_room(uuid)}  # of those, which have a part left
        self._changed: list[int] = []  # nodes of which something was taken, in that order
        self._known: dict[tuple[JobShape, int], _Capacity] = {}
        self._leftover = _leftover(self.free)
        self._most = (
            snapshot.largest_free if not (self._parts or self.node_table.unusable_devices) else self._look()
        )

    def _look(self) -> LargestFree:
        """Old ones are too large at worst, so it is enough to look again when something did not fit."""
        return LargestFree.from_free(self.node_table, self.free)

    def is_surely_full(self, shape: JobShape) -> bool:
        """No node has enough left; False does not promise that one has."""
        return not (shape.is_fractional and self._parts) and self._most.is_too_small_for(shape, self.node_table)

    def may_fit(self, shapes: Sequence[JobShape]) -> Array:
        """By shape: False promises that no node has enough left."""
        if not self._parts and all(self._most.is_too_small_for(shape, self.node_table) for shape in shapes):
            return np.zeros(len(shapes), bool)
        found = prefilter_shapes(shapes, self.node_table, self.free)
        if self._roomy:
            found |= self._have_parts(shapes)
        return found

    def _have_parts(self, shapes: Sequence[JobShape]) -> Array:
        """By shape: whether some shared device has enough left for one of its tasks."""
        uuids = [uuid for uuid in self._roomy if uuid in self.node_table.node_of_device]
        nodes = np.array([self.node_table.node_of_device[uuid] for uuid in uuids], np.int64)
        left = np.array([1 + _NEARLY - self._parts[uuid] for uuid in uuids])
        cpus, memory = self.free.cpus[nodes], self.free.memory_mib[nodes]
        return np.array(
            [shape.is_fractional and _any_has(shape.resources, left, cpus, memory) for shape in shapes], bool
        )

    def find_placement(self, shape: JobShape, project: str, end: float) -> JobPlacement | None:
        """A place for a job that may run until then."""
        suitable = self.node_table.eligibility_of(shape)
        for kind in suitable.device_kinds:
            if shape.is_fractional and self._parts and (shared := self._find_part(shape, kind, project, end)):
                return shared
            capacity = self._capacity(shape, kind, suitable.eligible_up_nodes)
            if self.bookings:
                capacity = capacity.copy()
                self.subtract_bookings(capacity, shape, kind, project, end)
            fit = place_tasks(capacity, shape, kind, self._leftover)
            if fit is not None:
                return fit
        self._most = self._look()
        return None

    def allocate(self, job: Job, shape: JobShape, fit: JobPlacement, until: float) -> PlannedStart:
        """Hand it out; which device goes to which task is decided here."""
        known = set(self._parts) if shape.is_fractional else set()
        places = self._places(shape, fit)
        rows = resource_rows(shape, fit, self.node_table)
        if shape.is_fractional:
            rows["devices"] = self._touched(places, fit, known)
        self.free.add_rows(rows["node"], rows, -1)
        if (
            shape.is_fractional
        ):  # one that was to be given back is held longer by whoever joins: none of it is left
            rows["devices"] = self._touched(places, fit, set())
        for keep in self.bookings:
            if keep.start < until:
                _take_from(keep, rows, job.project)
        rows["limit"] = until
        if shape.is_fractional:  # free when the last of those on it has ended: see part_ends
            rows["devices"] = 0
            for uuid in (uuid for place in places for uuid in place.devices):
                self.shared_device_ends[uuid] = max(self.shared_device_ends.get(uuid, 0.0), until)
        self.started_rows.append(rows)
        self._changed += fit.nodes.tolist()
        self._leftover[fit.nodes] = _leftover(self.free.select_nodes(fit.nodes))
        kind = self.node_table.device_kinds[fit.device_kind].type if fit.device_kind >= 0 else None
        return PlannedStart(job, places, kind)

    def subtract_bookings(self, capacity: Array, shape: JobShape, kind: int, project: str, end: float) -> None:
        """Leave no more than is not kept for others."""
        for keep in self.bookings:
            if keep.start < end and (keep.exempt_project is None or keep.exempt_project != project):
                left = count_tasks_per_node(shape, kind, keep.remaining)
                if shape.is_fractional:  # each may touch a device of its own
                    left = np.minimum(left, np.maximum(keep.remaining.gpus[:, kind], 0))
                capacity[keep.nodes] = np.minimum(capacity[keep.nodes], left)

    def _capacity(self, shape: JobShape, kind: int, allowed: Array) -> Array:
        """How many of its tasks each node could take now. Not to be changed: it is kept, and only nodes of which
        something was taken since are looked at again."""
        if shape.is_fractional and self._parts:
            return np.where(allowed, self._capacity_for_parts(shape, kind), 0)
        known = self._known.get((shape, kind))
        if known is None or len(self._changed) - known.seen > len(allowed):
            counts = np.where(allowed, count_tasks_per_node(shape, kind, self.free), 0)
            known = self._known[shape, kind] = _Capacity(counts, len(self._changed))
        elif known.seen < len(self._changed):
            nodes = np.array(self._changed[known.seen :])
            known.counts[nodes] = np.where(
                allowed[nodes], count_tasks_per_node(shape, kind, self.free.select_nodes(nodes)), 0
            )
            known.seen = len(self._changed)
        return known.counts

    def _capacity_for_parts(self, shape: JobShape, kind: int) -> Array:
        """Parts also fit on devices that are shared already."""
        free, part = self.free, shape.resources.gpus
        room = free.gpus[:, kind] * fractions_per_device(part)
        for uuid in self._roomy:
            if self._is_usable(uuid, kind):
                room[self.node_table.node_of_device[uuid]] += int((1 + _NEARLY - self._parts[uuid]) / part)
        return np.asarray(
            np.minimum(count_tasks_in_arrays(shape, free.cpus, free.memory_mib, None, free.running_count), room)
        )

    def _has_room(self, uuid: str) -> bool:
        return self._parts[uuid] <= 1 - _SMALLEST_PART + _NEARLY

    def _is_usable(self, uuid: str, kind: int) -> bool:
        return self.node_table.kind_of_device.get(uuid) == kind and uuid not in self.node_table.unusable_devices

    def _find_part(self, shape: JobShape, kind: int, project: str, end: float) -> JobPlacement | None:
        """The node of a shared device that has enough left: the fullest such device."""
        if shape.placement.exclusive or shape.placement.tasks > 1:
            return None
        open_nodes, wanted = self.node_table.eligibility_of(shape).eligible_up_nodes, shape.resources.gpus
        for uuid in sorted(self._roomy, key=lambda uuid: (-self._parts[uuid], uuid)):
            if not self._is_usable(uuid, kind) or not open_nodes[self.node_table.node_of_device[uuid]]:
                continue
            node = self.node_table.node_of_device[uuid]
            if self._parts[uuid] + wanted <= 1 + _NEARLY and self._has_cpus(shape, node, project, end):
                return JobPlacement(np.array([node]), np.array([1]), kind)
        return None

    def _has_cpus(self, shape: JobShape, node: int, project: str, end: float) -> bool:
        wanted, free = shape.resources, self.free
        if free.cpus[node] < wanted.cpus or free.memory_mib[node] < wanted.memory_mib:
            return False
        return not any(
            keep.start < end
            and node in keep.nodes
            and (keep.exempt_project is None or keep.exempt_project != project)
            for keep in self.bookings
        )

    def _touched(self, places: tuple[TaskPlacement, ...], fit: JobPlacement, without: set[str]) -> list[int]:
        """How many devices these take on each node of the fit."""
        devices = {uuid for place in places for uuid in place.devices} - without
        counts = Counter(self.node_table.node_of_device[uuid] for uuid in devices)
        return [counts[node] for node in fit.nodes.tolist()]

    def _places(self, shape: JobShape, fit: JobPlacement) -> tuple[TaskPlacement, ...]:
        return tuple(
            TaskPlacement(self.node_table.nodes[node].name, self._hand_out(int(node), shape, fit.device_kind))
            for node, tasks in zip(fit.nodes, fit.tasks_per_node, strict=True)
            for _ in range(tasks)
        )

    def _hand_out(self, node: int, shape: JobShape, kind: int) -> tuple[str, ...]:
        if kind < 0:
            return ()
        wanted = shape.resources
        if shape.is_fractional:
            uuid = self._choose_part(node, kind, wanted.gpus)
            self._parts[uuid] = self._parts.get(uuid, 0.0) + wanted.gpus
            (self._roomy.add if self._has_room(uuid) else self._roomy.discard)(uuid)
            return (uuid,)
        chosen = tuple(self._untouched(node, kind)[: wanted.device_count])
        self._taken.update(chosen)
        return chosen

    def _untouched(self, node: int, kind: int) -> list[str]:
        uuids = [device.uuid for device in self.node_table.usable_devices(node, kind)]
        return [uuid for uuid in uuids if not self._is_taken(uuid)]

    def _is_taken(self, uuid: str) -> bool:
        return uuid in self._held or uuid in self._taken or uuid in self._parts

    def _choose_part(self, node: int, kind: int, part: float) -> str:
        uuids = [device.uuid for device in self.node_table.usable_devices(node, kind)]
        shared = [uuid for uuid in uuids if self._parts.get(uuid, 1.0) + part <= 1 + _NEARLY]
        if shared:
            return max(shared, key=lambda uuid: self._parts[uuid])
        return self._untouched(node, kind)[0]


def _any_has(wanted: Resources, left: Array, cpus: Array, memory: Array) -> bool:
    return bool(((left >= wanted.gpus) & (cpus >= wanted.cpus) & (memory >= wanted.memory_mib)).any())


def _leftover(free: FreeResources) -> Array:
    """Small is good: GPU jobs go where few GPUs stay free, others where there are none; then few cpus."""
    return np.asarray(free.gpus.sum(axis=1) * 100_000 + np.minimum(free.cpus, 99_999))


def _whole_devices(snapshot: Snapshot) -> FreeResources:
    """What is free, counting shared devices as taken."""
    machines, free = snapshot.node_table, snapshot.free.copy()
    for uuid in snapshot.shared_device_use:
        if uuid in machines.node_of_device and uuid not in machines.unusable_devices:
            free.gpus[machines.node_of_device[uuid], machines.kind_of_device[uuid]] -= 1
    return free


def is_feasible(shape: JobShape, machines: NodeTable) -> bool:
    """Whether the nodes that are up could run it, were they empty."""
    found = machines.feasibility_cache.get(shape)
    if found is None:
        suitable, empty = machines.eligibility_of(shape), machines.total_resources()
        ways = (
            np.where(suitable.eligible_up_nodes, count_tasks_per_node(shape, kind, empty), 0)
            for kind in suitable.device_kinds
        )
        found = machines.feasibility_cache[shape] = any(
            distribute_tasks(way, shape, empty.cpus) is not None for way in ways
        )
    return found


def _take_from(keep: BookedCapacity, rows: Array, project: str) -> None:
    """What these rows hold is not left. Those for whom it is kept use up what is kept first."""
    where = {int(node): place for place, node in enumerate(keep.nodes)}
    inside = np.array([int(node) in where for node in rows["node"]], bool)
    if not inside.any():
        return
    rows = rows[inside]
    places = np.array([where[int(node)] for node in rows["node"]])
    if keep.exempt_project == project:
        if keep.booked_devices is None:
            return
        own = np.minimum(keep.booked_devices[places], rows["devices"])
        keep.booked_devices[places] -= own
        rows["devices"] -= own.astype(rows["devices"].dtype)
    keep.remaining.add_rows(places, rows, -1)


def prefilter_shapes(shapes: Sequence[JobShape], machines: NodeTable, free: FreeResources) -> Array:
    """By shape: whether some node that it may use could take one of its tasks now."""
    found = np.zeros(len(shapes), bool)
    alike: defaultdict[tuple[int, bool], list[int]] = defaultdict(list)
    for place, shape in enumerate(shapes):
        alike[machines.eligibility_of(shape).shape_group, shape.placement.exclusive].append(place)
    for (_, exclusive), places in alike.items():
        suitable = machines.eligibility_of(shapes[places[0]])
        found[places] = _fit([shapes[place] for place in places], suitable, free, exclusive)
    return found


def _fit(shapes: list[JobShape], suitable: Eligibility, free: FreeResources, exclusive: bool) -> Array:
    """The same for shapes that may use the same nodes and kinds of device."""
    nodes = suitable.eligible_up_nodes & (free.running_count == 0) if exclusive else suitable.eligible_up_nodes
    cpus, memory, gpus = free.cpus[nodes], free.memory_mib[nodes], free.gpus[nodes]
    needs = np.array(
        [(s.resources.cpus, s.resources.memory_mib, s.resources.device_count) for s in shapes], np.int64
    )
    found = np.zeros(len(shapes), bool)
    step = max(1, _AT_ONCE // max(len(cpus), 1))
    for first in range(0, len(shapes), step):
        some = needs[first : first + step, :, None]
        enough = (cpus >= some[:, 0]) & (memory >= some[:, 1])
        for kind in suitable.device_kinds:
            fits = enough if kind < 0 else enough & (gpus[:, kind] >= some[:, 2])
            found[first : first + step] |= fits.any(axis=1)
    return found
