"""The nodes as arrays: what each has in all, and who may use it."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from heliostat.models import Device, Node, NodeState
from heliostat.scheduling.columns import Array
from heliostat.scheduling.free import Free
from heliostat.scheduling.policy import Charges
from heliostat.scheduling.shapes import Shape


@dataclass(frozen=True, slots=True)
class Kind:
    """Devices that are alike."""

    type: str
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Suitable:
    """Which nodes and which kinds of device a shape may use, whatever is free."""

    nodes: Array  # bool: allowed there
    open_nodes: Array  # bool: allowed there, and the node is up
    kinds: tuple[int, ...]  # smallest first; (-1,) for a job without GPUs
    group: int  # of shapes that may use the same nodes and kinds


@dataclass(frozen=True, slots=True)
class Most:
    """The largest free amounts of any node: they tell at once that a shape cannot fit."""

    cpus: int
    gpus: tuple[int, ...]  # by kind

    @classmethod
    def of(cls, machines: "Machines", free: Free) -> "Most":
        up = machines.up_nodes
        if not len(up):
            return cls(0, (0,) * len(machines.kinds))
        cpus, gpus = (free.cpus, free.gpus) if len(up) == len(machines.nodes) else (free.cpus[up], free.gpus[up])
        return cls(int(cpus.max()), tuple(gpus.max(axis=0, initial=0).tolist()))

    def is_too_little(self, shape: Shape, machines: "Machines") -> bool:
        wanted = shape.resources
        if wanted.cpus > self.cpus:
            return True
        if not wanted.gpus:
            return False
        return all(wanted.devices > self.gpus[kind] for kind in machines.suitable(shape).kinds)


class Machines:
    """Does not change; made anew when a node changes."""

    def __init__(self, nodes: tuple[Node, ...] = ()) -> None:
        self.nodes = nodes
        self.index = {node.name: number for number, node in enumerate(nodes)}
        kinds = {_kind(device) for node in nodes for device in node.devices}
        self.kinds = tuple(sorted(kinds, key=lambda kind: (kind.memory_mib, kind.type)))
        number_of = {kind: number for number, kind in enumerate(self.kinds)}
        self.kind_of = {device.uuid: number_of[_kind(device)] for node in nodes for device in node.devices}
        self.node_of = {device.uuid: place for place, node in enumerate(nodes) for device in node.devices}
        self.cpus = np.array([node.cpus for node in nodes], np.int64)
        self.memory = np.array([node.memory_mib for node in nodes], np.int64)
        self.gpus = np.zeros((len(nodes), len(self.kinds)), np.int64)
        for place, node in enumerate(nodes):
            for device in node.devices:
                self.gpus[place, self.kind_of[device.uuid]] += device.may_be_used
        self.unusable = {d.uuid: place for place, n in enumerate(nodes) for d in n.devices if not d.may_be_used}
        self.is_up = np.array([node.state is NodeState.UP for node in nodes], bool)
        self.up_nodes = np.flatnonzero(self.is_up)
        self._labels = [_labels(node) for node in nodes]
        self.possible: dict[Shape, bool] = {}  # found out by others
        self._suitable: dict[Shape, Suitable] = {}
        self._groups: dict[tuple[bytes, tuple[int, ...]], int] = {}
        self._charge: tuple[Charges, float] | None = None

    def suitable(self, shape: Shape) -> Suitable:
        found = self._suitable.get(shape)
        if found is None:
            found = self._suitable[shape] = self._find(shape)
        return found

    def devices_of(self, node: int, kind: int) -> list[Device]:
        """Those that may be handed out, in their own order."""
        return [d for d in self.nodes[node].devices if d.may_be_used and self.kind_of[d.uuid] == kind]

    def charge(self, charges: Charges) -> float:
        """What an hour of all nodes is charged. The charges hardly ever change: the last answer is kept."""
        if self._charge is None or self._charge[0] is not charges:
            per_kind = [charges.gpus.get(kind.type.lower(), charges.gpu) for kind in self.kinds]
            gpus = float(self.gpus.sum(axis=0) @ np.array(per_kind)) if per_kind else 0.0
            memory_gib = float(self.memory.sum()) / 1024
            total = gpus + float(self.cpus.sum()) * charges.cpu + memory_gib * charges.memory_gib
            self._charge = charges, total
        return self._charge[1]

    def empty(self) -> Free:
        """What there is in all."""
        return Free(self.cpus.copy(), self.memory.copy(), self.gpus.copy(), np.zeros(len(self.nodes), np.int64))

    def count(self) -> Counter[str]:
        """How many devices there are of each type."""
        return Counter(device.type for node in self.nodes for device in node.devices)

    def _find(self, shape: Shape) -> Suitable:
        wanted = set(shape.placement.labels)
        allowed = np.array(
            [
                wanted <= labels
                and node.min_data_class <= shape.data_class <= node.data_class
                and (node.splits_devices or not shape.is_part)
                for node, labels in zip(self.nodes, self._labels, strict=True)
            ],
            bool,
        )
        kinds = self._kinds_for(shape)
        group = self._groups.setdefault((np.packbits(allowed).tobytes(), kinds), len(self._groups))
        return Suitable(allowed, allowed & self.is_up, kinds, group)

    def _kinds_for(self, shape: Shape) -> tuple[int, ...]:
        wanted = shape.resources
        if not wanted.gpus:
            return (-1,)
        return tuple(
            number
            for number, kind in enumerate(self.kinds)
            if (wanted.gpu_type is None or kind.type.lower() == wanted.gpu_type.lower())
            and kind.memory_mib >= (wanted.gpu_memory_mib or 0)
        )


def _kind(device: Device) -> Kind:
    return Kind(device.type, device.memory_mib)


def _labels(node: Node) -> frozenset[str]:
    """`disk=ssd` is found as `disk` and as `disk=ssd`."""
    return frozenset(node.labels) | {f"{name}={value}" for name, value in node.labels.items() if value}
