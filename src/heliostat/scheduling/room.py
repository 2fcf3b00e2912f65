"""What is free on a node while a plan is being made."""

from heliostat.models import Device, Node, Resources
from heliostat.scheduling.snapshot import Allocation, Snapshot


class Room:
    """The free part of one node. Changes while a plan hands it out; lives no longer than the plan."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.cpus = node.cpus
        self.memory_mib = node.memory_mib
        self.devices: list[Device] = [device for device in node.devices if device.may_be_used]

    def occupy(self, allocation: Allocation) -> None:
        self._subtract(allocation.job.resources, allocation.devices)

    def fits(self, wanted: Resources) -> bool:
        return (
            wanted.cpus <= self.cpus
            and wanted.memory_mib <= self.memory_mib
            and wanted.gpus <= self.free_devices(wanted.gpu_type)
        )

    def take(self, wanted: Resources) -> tuple[str, ...]:
        """Hand out what is wanted; the uuids of the devices."""
        suitable = [device for device in self.devices if _is_type(device, wanted.gpu_type)]
        chosen = tuple(device.uuid for device in suitable[: wanted.devices])
        self._subtract(wanted, chosen)
        return chosen

    def free_devices(self, gpu_type: str | None) -> int:
        return sum(_is_type(device, gpu_type) for device in self.devices)

    def could_ever_take(self, wanted: Resources) -> bool:
        """Whether the empty node would do."""
        return (
            wanted.cpus <= self.node.cpus
            and wanted.memory_mib <= self.node.memory_mib
            and wanted.gpus <= self.devices_in_all(wanted.gpu_type)
        )

    def devices_in_all(self, gpu_type: str | None) -> int:
        return sum(_is_type(device, gpu_type) for device in self.node.devices)

    def describe(self, wanted: Resources) -> str:
        """What is free of what is wanted."""
        free = self.free_devices(wanted.gpu_type)
        gpus = [gpus_in_words(free, wanted.gpu_type)] if wanted.gpus else []
        return ", ".join([*gpus, cpus_in_words(self.cpus), f"{self.memory_mib} MiB"]) + " are free"

    def _subtract(self, wanted: Resources, chosen: tuple[str, ...]) -> None:
        self.cpus -= wanted.cpus
        self.memory_mib -= wanted.memory_mib
        if chosen:
            self.devices = [device for device in self.devices if device.uuid not in chosen]


def cpus_in_words(cpus: int) -> str:
    return f"{cpus} cpu{'' if cpus == 1 else 's'}"


def gpus_in_words(gpus: float, gpu_type: str | None) -> str:
    return f"{gpus:g} {gpu_type or ('GPU' if gpus == 1 else 'GPUs')}"


def rooms_of(snapshot: Snapshot) -> list[Room]:
    rooms = {node.name: Room(node) for node in snapshot.nodes}
    for allocation in snapshot.allocations:
        if room := rooms.get(allocation.node):
            room.occupy(allocation)
    return list(rooms.values())


def _is_type(device: Device, gpu_type: str | None) -> bool:
    return gpu_type is None or device.type.lower() == gpu_type.lower()
