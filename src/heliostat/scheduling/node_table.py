"""The nodes as arrays: total resources, and which nodes a job shape may use."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from heliostat.models import Device, Node, NodeState
from heliostat.models.gpu_types import accepts_gpu_type, card_fraction, is_slice
from heliostat.scheduling.free_resources import FreeResources
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.policy import ChargeRates


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """Devices of the same type and memory."""

    type: str
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Eligibility:
    """Nodes and kinds of device that a shape may use, free or not."""

    eligible_nodes: Array  # bool
    eligible_up_nodes: Array  # bool: eligible, and the node is up
    device_kinds: tuple[int, ...]  # smallest first; (-1,) for a job without GPUs
    shape_group: int  # the same for shapes with the same eligible nodes and kinds


@dataclass(frozen=True, slots=True)
class LargestFree:
    """The largest free amounts on any node: a quick test that a shape cannot fit."""

    cpus: int
    gpus: tuple[int, ...]  # by kind

    @classmethod
    def from_free(cls, node_table: "NodeTable", free: FreeResources) -> "LargestFree":
        up = node_table.up_nodes
        if not len(up):
            return cls(0, (0,) * len(node_table.device_kinds))
        cpus, gpus = (free.cpus, free.gpus) if len(up) == len(node_table.nodes) else (free.cpus[up], free.gpus[up])
        return cls(int(cpus.max()), tuple(gpus.max(axis=0, initial=0).tolist()))

    def is_too_small_for(self, shape: JobShape, node_table: "NodeTable") -> bool:
        requested = shape.resources
        if requested.cpus > self.cpus:
            return True
        if not requested.gpus:
            return False
        return all(
            requested.device_count > self.gpus[kind] for kind in node_table.eligibility_of(shape).device_kinds
        )


class NodeTable:
    """Immutable; built again when a node changes."""

    def __init__(self, nodes: tuple[Node, ...] = ()) -> None:
        self.nodes = nodes
        self.index_by_name = {node.name: number for number, node in enumerate(nodes)}
        kinds = {_kind(device) for node in nodes for device in node.devices}
        self.device_kinds = tuple(sorted(kinds, key=lambda kind: (kind.memory_mib, kind.type)))
        number_of = {kind: number for number, kind in enumerate(self.device_kinds)}
        self.kind_of_device = {device.uuid: number_of[_kind(device)] for node in nodes for device in node.devices}
        self.node_of_device = {device.uuid: index for index, node in enumerate(nodes) for device in node.devices}
        self.cpus = np.array([node.cpus for node in nodes], np.int64)
        self.memory_mib = np.array([node.memory_mib for node in nodes], np.int64)
        self.gpus = np.zeros((len(nodes), len(self.device_kinds)), np.int64)
        for index, node in enumerate(nodes):
            for device in node.devices:
                self.gpus[index, self.kind_of_device[device.uuid]] += device.is_available
        self.is_whole = np.array([not is_slice(kind.type) for kind in self.device_kinds], bool)  # by kind
        self.cards = self.gpus @ np.array([card_fraction(kind.type) for kind in self.device_kinds], float)
        self.unusable_devices = {
            d.uuid: index for index, n in enumerate(nodes) for d in n.devices if not d.is_available
        }
        self.is_up = np.array([node.state is NodeState.UP for node in nodes], bool)
        self.up_nodes = np.flatnonzero(self.is_up)
        self._labels = [_labels(node) for node in nodes]
        self.feasibility_cache: dict[JobShape, bool] = {}  # filled by capacity.is_feasible
        self._eligibility: dict[JobShape, Eligibility] = {}
        self._groups: dict[tuple[bytes, tuple[int, ...]], int] = {}
        self._charge: tuple[ChargeRates, float] | None = None

    def eligibility_of(self, shape: JobShape) -> Eligibility:
        eligibility = self._eligibility.get(shape)
        if eligibility is None:
            eligibility = self._eligibility[shape] = self._compute_eligibility(shape)
        return eligibility

    def usable_devices(self, node: int, kind: int) -> list[Device]:
        """Devices of this kind that may be allocated, in their own order."""
        return [d for d in self.nodes[node].devices if d.is_available and self.kind_of_device[d.uuid] == kind]

    def hourly_charge(self, charges: ChargeRates) -> float:
        """Charge for one hour of all nodes. Cached: the rates rarely change."""
        if self._charge is None or self._charge[0] is not charges:
            per_kind = [charges.gpu_charge(kind.type) for kind in self.device_kinds]
            gpus = float(self.gpus.sum(axis=0) @ np.array(per_kind)) if per_kind else 0.0
            memory_gib = float(self.memory_mib.sum()) / 1024
            total = gpus + float(self.cpus.sum()) * charges.cpu + memory_gib * charges.memory_gib
            self._charge = charges, total
        return self._charge[1]

    def total_resources(self) -> FreeResources:
        """All resources of the nodes, as if nothing ran."""
        return FreeResources(
            self.cpus.copy(), self.memory_mib.copy(), self.gpus.copy(), np.zeros(len(self.nodes), np.int64)
        )

    def count_devices_by_type(self) -> Counter[str]:
        """Number of devices by type."""
        return Counter(device.type for node in self.nodes for device in node.devices)

    def _compute_eligibility(self, shape: JobShape) -> Eligibility:
        requested = set(shape.placement.labels)
        eligible = np.array(
            [
                requested <= labels
                and node.min_data_class <= shape.data_class <= node.data_class
                and (node.splits_devices or not shape.is_fractional)
                for node, labels in zip(self.nodes, self._labels, strict=True)
            ],
            bool,
        )
        kinds = self._device_kinds_for(shape)
        group = self._groups.setdefault((np.packbits(eligible).tobytes(), kinds), len(self._groups))
        return Eligibility(eligible, eligible & self.is_up, kinds, group)

    def _device_kinds_for(self, shape: JobShape) -> tuple[int, ...]:
        requested = shape.resources
        if not requested.gpus:
            return (-1,)
        return tuple(
            number
            for number, kind in enumerate(self.device_kinds)
            if accepts_gpu_type(requested.gpu_type, kind.type)
            and not (shape.is_fractional and is_slice(kind.type))
            and kind.memory_mib >= (requested.gpu_memory_mib or 0)
        )


def _kind(device: Device) -> DeviceKind:
    return DeviceKind(device.type, device.memory_mib)


def _labels(node: Node) -> frozenset[str]:
    """`disk=ssd` matches `disk` and `disk=ssd`."""
    return frozenset(node.labels) | {f"{name}={value}" for name, value in node.labels.items() if value}
