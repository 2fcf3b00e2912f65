"""Feasibility: what nodes could run if they were empty; and requested resources as text. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum

from heliostat.models import Device, Node, PlacementRequest, Resources, TaskLayout
from heliostat.models.amounts import format_count, format_size, join_words
from heliostat.models.gpu_types import accepts_gpu_type, is_slice


def could_ever_run(
    nodes: Iterable[Node], requested: Resources, placement: PlacementRequest, data_class: int = 0
) -> bool:
    """Whether these nodes could run all tasks at once if they were empty."""
    eligible = [
        node for node in nodes if allows_data_class(node, data_class) and has_labels(node, placement.labels)
    ]
    return count_tasks_that_fit(eligible, requested, placement.layout) >= placement.tasks


class MissingRequirement(Enum):
    """Why nodes that are large enough cannot run a job."""

    DATA_CLASS = "data class"
    LABELS = "labels"
    GPU_SHARING = "splitting"


def find_missing_requirement(
    nodes: Sequence[Node], requested: Resources, placement: PlacementRequest, data_class: int = 0
) -> MissingRequirement | None:
    """The one condition that prevents it; None: the nodes are too small, or several conditions prevent it."""
    cleared = [replace(node, min_data_class=0, data_class=data_class) for node in nodes]
    if could_ever_run(cleared, requested, placement, data_class):
        return MissingRequirement.DATA_CLASS
    if could_ever_run(nodes, requested, replace(placement, labels=()), data_class):
        return MissingRequirement.LABELS
    sharing = [replace(node, splits_devices=True) for node in nodes]
    return MissingRequirement.GPU_SHARING if could_ever_run(sharing, requested, placement, data_class) else None


def count_tasks_that_fit(nodes: Iterable[Node], requested: Resources, layout: TaskLayout) -> int:
    """How many tasks fit on the empty nodes together; with layout spread, one per node."""
    counts = (count_tasks_on_node(node, requested) for node in nodes)
    return sum(min(count, 1) if layout is TaskLayout.SPREAD else count for count in counts)


def count_tasks_on_node(node: Node, requested: Resources) -> int:
    """How many tasks fit on the empty node."""
    by_cpus = node.cpus // max(1, requested.cpus)
    by_memory = node.memory_mib // max(1, requested.memory_mib)
    return (
        min(by_cpus, by_memory, _tasks_by_devices(node, requested)) if requested.gpus else min(by_cpus, by_memory)
    )


def matching_devices(node: Node, gpu_type: str | None, gpu_memory_mib: int | None = None) -> list[Device]:
    """Devices of this type (None: of any, but no slices) with at least this much memory, in any state."""
    return [
        device
        for device in node.devices
        if accepts_gpu_type(gpu_type, device.type) and device.memory_mib >= (gpu_memory_mib or 0)
    ]


def allows_data_class(node: Node, data_class: int) -> bool:
    """Whether the node is cleared for this data class and not restricted to higher ones."""
    return node.min_data_class <= data_class <= node.data_class


def has_labels(node: Node, labels: Iterable[str]) -> bool:
    """Whether it has all labels: `fast` matches any value, `disk=ssd` only this one."""
    return all(_has_label(node, label) for label in labels)


def fractions_per_device(gpus: float) -> int:
    """How many jobs with this fraction of a GPU fit on one; counted in hundredths, like requests."""
    return 100 // max(1, round(gpus * 100))


def format_resources(requested: Resources) -> str:
    gpus = [format_gpus(requested.gpus, requested.gpu_type, requested.gpu_memory_mib)] if requested.gpus else []
    return join_words([*gpus, format_count(requested.cpus, "CPU"), format_size(requested.memory_mib)])


def format_gpus(gpus: float, gpu_type: str | None, gpu_memory_mib: int | None = None) -> str:
    """`2 A100`, `0.5 GPU`, `1 GPU with at least 16 GiB`."""
    kind = gpu_type or ("GPU" if 0 < gpus <= 1 else "GPUs")  # 0.5 GPU
    memory = f" with at least {format_size(gpu_memory_mib)}" if gpu_memory_mib else ""
    return f"{gpus:g} {kind}{memory}"


def _tasks_by_devices(node: Node, requested: Resources) -> int:
    devices = len(matching_devices(node, requested.gpu_type, requested.gpu_memory_mib))
    if requested.gpus >= 1:
        return devices // requested.device_count
    may_share = node.splits_devices and not is_slice(requested.gpu_type)
    return devices * fractions_per_device(requested.gpus) if may_share else 0


def _has_label(node: Node, label: str) -> bool:
    name, equals, value = label.partition("=")
    return name in node.labels and (not equals or node.labels[name] == value)
