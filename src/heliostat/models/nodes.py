"""Nodes and their devices (GPUs)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from heliostat.models.gpu_types import card_fraction
from heliostat.models.states import NodeState


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process on a device."""

    pid: int
    memory_mib: int = 0
    user: str | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU or a MIG slice. Not allocated while `problem` or `used_outside` is set; both are texts for users."""

    uuid: str
    index: int  # of the card, as nvidia-smi shows it
    type: str  # short and typable: "A100", "RTX-3090", "A100-1g.10gb"
    name: str  # as reported by the driver: "NVIDIA A100-SXM4-80GB"
    memory_mib: int
    memory_used_mib: int = 0
    utilisation: int | None = None  # percent
    temperature: int | None = None  # Celsius
    power_watts: float | None = None
    problem: str | None = None
    used_outside: str | None = None
    processes: tuple[DeviceProcess, ...] = ()
    slice_index: int | None = None  # of a slice on its card
    card_uuid: str | None = None  # of the card of a slice
    files: tuple[str, ...] = ()  # device files that only this device needs
    energy_millijoules: int | None = None  # used since the driver started
    pci: str | None = None  # of its card: "0000:3b:00"
    fault: str | None = None  # the kind of error that took out its card, until that passes a test
    errors: tuple[tuple[str, int], ...] = ()  # of its card, that its driver reports now: kind and number

    @property
    def number(self) -> str:
        """`0`, or `0:3` for a slice."""
        return str(self.index) if self.slice_index is None else f"{self.index}:{self.slice_index}"

    @property
    def card(self) -> str:
        """The uuid of its card."""
        return self.card_uuid or self.uuid

    @property
    def card_fraction(self) -> float:
        """The part of a GPU that it counts as."""
        return card_fraction(self.type)

    @property
    def is_available(self) -> bool:
        return self.problem is None and self.used_outside is None


@dataclass(frozen=True, slots=True)
class Node:
    """A server that runs jobs."""

    name: str
    cpus: int
    memory_mib: int
    devices: tuple[Device, ...] = ()
    state: NodeState = NodeState.UP
    reason: str | None = None  # why it is drained or down
    labels: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # "No GPU found: CPU jobs run."
    data_class: int = 0  # cleared for data up to this class
    min_data_class: int = 0  # reserved for jobs of at least this class
    splits_devices: bool = False  # several jobs may share one of its GPUs
    driver: str | None = None  # version of the GPU driver, if known


def count_cards(devices: Iterable[Device]) -> float:
    """The number of GPUs, with each slice as its part of one."""
    total = round(sum(device.card_fraction for device in devices), 6)  # seven sevenths are 1
    return int(total) if total == int(total) else total


@dataclass(frozen=True, slots=True)
class Recomposition:
    """A change of the GPUs of a node, step by step."""

    node: str
    gpus: Mapping[str, int]  # after the change, by type
    steps: tuple[str, ...]  # a sentence for each
    at: int  # the current step; after the last: finished
    error: str | None = None  # why the current step failed; it is retried
