"""The free room of the whole cluster while a plan is made: who fits where until when, and handing it out."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heliostat.models import Job, Place, Resources
from heliostat.scheduling.columns import Array
from heliostat.scheduling.fits import Fit, fit_into, needs_of
from heliostat.scheduling.fitting import parts_per_device
from heliostat.scheduling.free import Free, capacity_for, spread_over, tasks_in
from heliostat.scheduling.machines import Machines, Most, Suitable
from heliostat.scheduling.shapes import Shape
from heliostat.scheduling.snapshot import Snapshot, Start

_NEARLY = 1e-9
_SMALLEST_PART = 0.01
_AT_ONCE = 2_000_000  # pairs of shape and node: more are looked at in pieces


@dataclass(slots=True)
class Keep:
    """Room on some nodes that is kept from a time on: jobs that run longer find only what is left of them."""

    at: float
    nodes: Array
    left: Free  # parallel to nodes
    project: str | None = None  # whose jobs it does not concern
    kept: Array | None = None  # how many devices are kept for them, parallel to nodes; None: all there are


@dataclass(slots=True)
class _Capacity:
    """How many tasks of a shape each node could take when so many changes had been seen."""

    counts: Array
    seen: int


class Rooms:
    """Lives no longer than the plan."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.machines: Machines = snapshot.machines
        self.free = _whole_devices(snapshot)
        self.keeps: list[Keep] = []
        self.started: list[Array] = []  # rows of RUNNING for what this plan starts
        self.part_ends: dict[str, float] = {}  # until when it gives parts of these devices away
        self._held = snapshot.held
        self._taken: set[str] = set()  # whole devices that this plan hands out
        self._parts = dict(snapshot.parts)
        self._roomy = {uuid for uuid in self._parts if self._has_room(uuid)}  # of those, which have a part left
        self._changed: list[int] = []  # nodes of which something was taken, in that order
        self._known: dict[tuple[Shape, int], _Capacity] = {}
        self._leftover = _leftover(self.free)
        self._most = snapshot.most_free if not (self._parts or self.machines.unusable) else self._look()

    def _look(self) -> Most:
        """Old ones are too large at worst, so it is enough to look again when something did not fit."""
        return Most.of(self.machines, self.free)

    def surely_full(self, shape: Shape) -> bool:
        """No node has enough left; False does not promise that one has."""
        return not (shape.is_part and self._parts) and self._most.is_too_little(shape, self.machines)

    def may_have_room(self, shapes: Sequence[Shape]) -> Array:
        """By shape: False promises that no node has enough left."""
        if not self._parts and all(self._most.is_too_little(shape, self.machines) for shape in shapes):
            return np.zeros(len(shapes), bool)
        found = have_room(shapes, self.machines, self.free)
        if self._roomy:
            found |= self._have_parts(shapes)
        return found

    def _have_parts(self, shapes: Sequence[Shape]) -> Array:
        """By shape: whether some shared device has enough left for one of its tasks."""
        uuids = [uuid for uuid in self._roomy if uuid in self.machines.node_of]
        nodes = np.array([self.machines.node_of[uuid] for uuid in uuids], np.int64)
        left = np.array([1 + _NEARLY - self._parts[uuid] for uuid in uuids])
        cpus, memory = self.free.cpus[nodes], self.free.memory[nodes]
        return np.array(
            [shape.is_part and _any_has(shape.resources, left, cpus, memory) for shape in shapes], bool
        )

    def find(self, shape: Shape, project: str, end: float) -> Fit | None:
        """A place for a job that may run until then."""
        suitable = self.machines.suitable(shape)
        for kind in suitable.kinds:
            if shape.is_part and self._parts and (shared := self._find_part(shape, kind, project, end)):
                return shared
            capacity = self._capacity(shape, kind, suitable.open_nodes)
            if self.keeps:
                capacity = capacity.copy()
                self.respect_keeps(capacity, shape, kind, project, end)
            fit = fit_into(capacity, shape, kind, self._leftover)
            if fit is not None:
                return fit
        self._most = self._look()
        return None

    def take(self, job: Job, shape: Shape, fit: Fit, until: float) -> Start:
        """Hand it out; which device goes to which task is decided here."""
        known = set(self._parts) if shape.is_part else set()
        places = self._places(shape, fit)
        rows = needs_of(shape, fit, self.machines)
        if shape.is_part:
            rows["devices"] = self._touched(places, fit, known)
        self.free.add(rows["node"], rows, -1)
        if shape.is_part:  # one that was to be given back is held longer by whoever joins: none of it is left
            rows["devices"] = self._touched(places, fit, set())
        for keep in self.keeps:
            if keep.at < until:
                _take_from(keep, rows, job.project)
        rows["limit"] = until
        if shape.is_part:  # free when the last of those on it has ended: see part_ends
            rows["devices"] = 0
            for uuid in (uuid for place in places for uuid in place.devices):
                self.part_ends[uuid] = max(self.part_ends.get(uuid, 0.0), until)
        self.started.append(rows)
        self._changed += fit.nodes.tolist()
        self._leftover[fit.nodes] = _leftover(self.free.of(fit.nodes))
        kind = self.machines.kinds[fit.kind].type if fit.kind >= 0 else None
        return Start(job, places, kind)

    def respect_keeps(self, capacity: Array, shape: Shape, kind: int, project: str, end: float) -> None:
        """Leave no more than is not kept for others."""
        for keep in self.keeps:
            if keep.at < end and (keep.project is None or keep.project != project):
                left = capacity_for(shape, kind, keep.left)
                if shape.is_part:  # each may touch a device of its own
                    left = np.minimum(left, np.maximum(keep.left.gpus[:, kind], 0))
                capacity[keep.nodes] = np.minimum(capacity[keep.nodes], left)

    def _capacity(self, shape: Shape, kind: int, allowed: Array) -> Array:
        """How many of its tasks each node could take now. Not to be changed: it is kept, and only nodes of which
        something was taken since are looked at again."""
        if shape.is_part and self._parts:
            return np.where(allowed, self._capacity_for_parts(shape, kind), 0)
        known = self._known.get((shape, kind))
        if known is None or len(self._changed) - known.seen > len(allowed):
            counts = np.where(allowed, capacity_for(shape, kind, self.free), 0)
            known = self._known[shape, kind] = _Capacity(counts, len(self._changed))
        elif known.seen < len(self._changed):
            nodes = np.array(self._changed[known.seen :])
            known.counts[nodes] = np.where(allowed[nodes], capacity_for(shape, kind, self.free.of(nodes)), 0)
            known.seen = len(self._changed)
        return known.counts

    def _capacity_for_parts(self, shape: Shape, kind: int) -> Array:
        """Parts also fit on devices that are shared already."""
        free, part = self.free, shape.resources.gpus
        room = free.gpus[:, kind] * parts_per_device(part)
        for uuid in self._roomy:
            if self._is_usable(uuid, kind):
                room[self.machines.node_of[uuid]] += int((1 + _NEARLY - self._parts[uuid]) / part)
        return np.asarray(np.minimum(tasks_in(shape, free.cpus, free.memory, None, free.holders), room))

    def _has_room(self, uuid: str) -> bool:
        return self._parts[uuid] <= 1 - _SMALLEST_PART + _NEARLY

    def _is_usable(self, uuid: str, kind: int) -> bool:
        return self.machines.kind_of.get(uuid) == kind and uuid not in self.machines.unusable

    def _find_part(self, shape: Shape, kind: int, project: str, end: float) -> Fit | None:
        """The node of a shared device that has enough left: the fullest such device."""
        if shape.placement.exclusive or shape.placement.tasks > 1:
            return None
        open_nodes, wanted = self.machines.suitable(shape).open_nodes, shape.resources.gpus
        for uuid in sorted(self._roomy, key=lambda uuid: (-self._parts[uuid], uuid)):
            if not self._is_usable(uuid, kind) or not open_nodes[self.machines.node_of[uuid]]:
                continue
            node = self.machines.node_of[uuid]
            if self._parts[uuid] + wanted <= 1 + _NEARLY and self._has_cpus(shape, node, project, end):
                return Fit(np.array([node]), np.array([1]), kind)
        return None

    def _has_cpus(self, shape: Shape, node: int, project: str, end: float) -> bool:
        wanted, free = shape.resources, self.free
        if free.cpus[node] < wanted.cpus or free.memory[node] < wanted.memory_mib:
            return False
        return not any(
            keep.at < end and node in keep.nodes and (keep.project is None or keep.project != project)
            for keep in self.keeps
        )

    def _touched(self, places: tuple[Place, ...], fit: Fit, without: set[str]) -> list[int]:
        """How many devices these take on each node of the fit."""
        devices = {uuid for place in places for uuid in place.devices} - without
        counts = Counter(self.machines.node_of[uuid] for uuid in devices)
        return [counts[node] for node in fit.nodes.tolist()]

    def _places(self, shape: Shape, fit: Fit) -> tuple[Place, ...]:
        return tuple(
            Place(self.machines.nodes[node].name, self._hand_out(int(node), shape, fit.kind))
            for node, tasks in zip(fit.nodes, fit.tasks, strict=True)
            for _ in range(tasks)
        )

    def _hand_out(self, node: int, shape: Shape, kind: int) -> tuple[str, ...]:
        if kind < 0:
            return ()
        wanted = shape.resources
        if shape.is_part:
            uuid = self._choose_part(node, kind, wanted.gpus)
            self._parts[uuid] = self._parts.get(uuid, 0.0) + wanted.gpus
            (self._roomy.add if self._has_room(uuid) else self._roomy.discard)(uuid)
            return (uuid,)
        chosen = tuple(self._untouched(node, kind)[: wanted.devices])
        self._taken.update(chosen)
        return chosen

    def _untouched(self, node: int, kind: int) -> list[str]:
        uuids = [device.uuid for device in self.machines.devices_of(node, kind)]
        return [uuid for uuid in uuids if not self._is_taken(uuid)]

    def _is_taken(self, uuid: str) -> bool:
        return uuid in self._held or uuid in self._taken or uuid in self._parts

    def _choose_part(self, node: int, kind: int, part: float) -> str:
        uuids = [device.uuid for device in self.machines.devices_of(node, kind)]
        shared = [uuid for uuid in uuids if self._parts.get(uuid, 1.0) + part <= 1 + _NEARLY]
        if shared:
            return max(shared, key=lambda uuid: self._parts[uuid])
        return self._untouched(node, kind)[0]


def _any_has(wanted: Resources, left: Array, cpus: Array, memory: Array) -> bool:
    return bool(((left >= wanted.gpus) & (cpus >= wanted.cpus) & (memory >= wanted.memory_mib)).any())


def _leftover(free: Free) -> Array:
    """Small is good: GPU jobs go where few GPUs stay free, others where there are none; then few cpus."""
    return np.asarray(free.gpus.sum(axis=1) * 100_000 + np.minimum(free.cpus, 99_999))


def _whole_devices(snapshot: Snapshot) -> Free:
    """What is free, counting shared devices as taken."""
    machines, free = snapshot.machines, snapshot.free.copy()
    for uuid in snapshot.parts:
        if uuid in machines.node_of and uuid not in machines.unusable:
            free.gpus[machines.node_of[uuid], machines.kind_of[uuid]] -= 1
    return free


def is_possible(shape: Shape, machines: Machines) -> bool:
    """Whether the nodes that are up could run it, were they empty."""
    found = machines.possible.get(shape)
    if found is None:
        suitable, empty = machines.suitable(shape), machines.empty()
        ways = (np.where(suitable.open_nodes, capacity_for(shape, kind, empty), 0) for kind in suitable.kinds)
        found = machines.possible[shape] = any(spread_over(way, shape, empty.cpus) is not None for way in ways)
    return found


def _take_from(keep: Keep, rows: Array, project: str) -> None:
    """What these rows hold is not left. Those for whom it is kept use up what is kept first."""
    where = {int(node): place for place, node in enumerate(keep.nodes)}
    inside = np.array([int(node) in where for node in rows["node"]], bool)
    if not inside.any():
        return
    rows = rows[inside]
    places = np.array([where[int(node)] for node in rows["node"]])
    if keep.project == project:
        if keep.kept is None:
            return
        own = np.minimum(keep.kept[places], rows["devices"])
        keep.kept[places] -= own
        rows["devices"] -= own.astype(rows["devices"].dtype)
    keep.left.add(places, rows, -1)


def have_room(shapes: Sequence[Shape], machines: Machines, free: Free) -> Array:
    """By shape: whether some node that it may use could take one of its tasks now."""
    found = np.zeros(len(shapes), bool)
    alike: defaultdict[tuple[int, bool], list[int]] = defaultdict(list)
    for place, shape in enumerate(shapes):
        alike[machines.suitable(shape).group, shape.placement.exclusive].append(place)
    for (_, exclusive), places in alike.items():
        suitable = machines.suitable(shapes[places[0]])
        found[places] = _fit([shapes[place] for place in places], suitable, free, exclusive)
    return found


def _fit(shapes: list[Shape], suitable: Suitable, free: Free, exclusive: bool) -> Array:
    """The same for shapes that may use the same nodes and kinds of device."""
    nodes = suitable.open_nodes & (free.holders == 0) if exclusive else suitable.open_nodes
    cpus, memory, gpus = free.cpus[nodes], free.memory[nodes], free.gpus[nodes]
    needs = np.array([(s.resources.cpus, s.resources.memory_mib, s.resources.devices) for s in shapes], np.int64)
    found = np.zeros(len(shapes), bool)
    step = max(1, _AT_ONCE // max(len(cpus), 1))
    for first in range(0, len(shapes), step):
        some = needs[first : first + step, :, None]
        enough = (cpus >= some[:, 0]) & (memory >= some[:, 1])
        for kind in suitable.kinds:
            fits = enough if kind < 0 else enough & (gpus[:, kind] >= some[:, 2])
            found[first : first + step] |= fits.any(axis=1)
    return found
