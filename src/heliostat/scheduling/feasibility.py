"""What empty nodes could hold, whatever runs there now; and what is asked for, in words. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum

from heliostat.models import Device, Node, PlacementRequest, Resources, TaskLayout


def could_ever_run(
    nodes: Iterable[Node], wanted: Resources, placement: PlacementRequest, data_class: int = 0
) -> bool:
    """Whether these nodes, were they empty, could run all its tasks at once."""
    suitable = [
        node for node in nodes if allows_data_class(node, data_class) and has_labels(node, placement.labels)
    ]
    return count_tasks_that_fit(suitable, wanted, placement.layout) >= placement.tasks


class MissingRequirement(Enum):
    """Why nodes that are large enough do not count."""

    DATA_CLASS = "data class"
    LABELS = "labels"
    GPU_SHARING = "splitting"


def find_missing_requirement(
    nodes: Sequence[Node], wanted: Resources, placement: PlacementRequest, data_class: int = 0
) -> MissingRequirement | None:
    """The one condition without which they could run it; None: they are too small, or several are in the way."""
    anything = [replace(node, min_data_class=0, data_class=data_class) for node in nodes]
    if could_ever_run(anything, wanted, placement, data_class):
        return MissingRequirement.DATA_CLASS
    if could_ever_run(nodes, wanted, replace(placement, labels=()), data_class):
        return MissingRequirement.LABELS
    sharing = [replace(node, splits_devices=True) for node in nodes]
    return MissingRequirement.GPU_SHARING if could_ever_run(sharing, wanted, placement, data_class) else None


def count_tasks_that_fit(nodes: Iterable[Node], wanted: Resources, layout: TaskLayout) -> int:
    """How many tasks of this size the empty nodes hold together; spread, each holds one."""
    counts = (count_tasks_on_node(node, wanted) for node in nodes)
    return sum(min(count, 1) if layout is TaskLayout.SPREAD else count for count in counts)


def count_tasks_on_node(node: Node, wanted: Resources) -> int:
    """How many tasks of this size the empty node holds."""
    by_cpus = node.cpus // max(1, wanted.cpus)
    by_memory = node.memory_mib // max(1, wanted.memory_mib)
    return min(by_cpus, by_memory, _tasks_by_devices(node, wanted)) if wanted.gpus else min(by_cpus, by_memory)


def matching_devices(node: Node, gpu_type: str | None, gpu_memory_mib: int | None = None) -> list[Device]:
    """Those of the type with at least that much memory, whatever state they are in."""
    return [
        device
        for device in node.devices
        if (gpu_type is None or device.type.lower() == gpu_type.lower())
        and device.memory_mib >= (gpu_memory_mib or 0)
    ]


def allows_data_class(node: Node, data_class: int) -> bool:
    """Cleared for this class of data, and not kept for a higher one."""
    return node.min_data_class <= data_class <= node.data_class


def has_labels(node: Node, labels: Iterable[str]) -> bool:
    """Whether it has all of these: `fast` is there with any value, `disk=ssd` with this one."""
    return all(_has_label(node, label) for label in labels)


def fractions_per_device(gpus: float) -> int:
    """How many jobs of this part of a GPU share one; counted in hundredths, as they are asked for."""
    return 100 // max(1, round(gpus * 100))


def format_resources(wanted: Resources) -> str:
    gpus = [format_gpus(wanted.gpus, wanted.gpu_type, wanted.gpu_memory_mib)] if wanted.gpus else []
    return ", ".join([*gpus, format_cpus(wanted.cpus), format_memory(wanted.memory_mib)])


def format_memory(mib: int) -> str:
    """`512 MiB`, `16 GiB`, `1.5 GiB`."""
    return f"{mib} MiB" if mib < 1024 or mib % 512 else f"{mib / 1024:g} GiB"


def format_cpus(cpus: int) -> str:
    return f"{cpus} cpu{'' if cpus == 1 else 's'}"


def format_gpus(gpus: float, gpu_type: str | None, gpu_memory_mib: int | None = None) -> str:
    """`2 A100`, `0.5 GPU`, `1 GPU with at least 16 GiB`."""
    kind = gpu_type or ("GPU" if 0 < gpus <= 1 else "GPUs")
    memory = f" with at least {format_memory(gpu_memory_mib)}" if gpu_memory_mib else ""
    return f"{gpus:g} {kind}{memory}"


def format_tasks(tasks: int) -> str:
    return f"{tasks} task{'' if tasks == 1 else 's'}"


def _tasks_by_devices(node: Node, wanted: Resources) -> int:
    devices = len(matching_devices(node, wanted.gpu_type, wanted.gpu_memory_mib))
    if wanted.gpus >= 1:
        return devices // wanted.device_count
    return devices * fractions_per_device(wanted.gpus) if node.splits_devices else 0


def _has_label(node: Node, label: str) -> bool:
    name, equals, value = label.partition("=")
    return name in node.labels and (not equals or node.labels[name] == value)
