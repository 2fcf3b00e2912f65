"""Nodes and their devices (GPUs)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    """A GPU. It is not allocated while `problem` or `used_outside` is set; both are texts for users."""

    uuid: str
    index: int
    type: str  # short and typable: "A100", "RTX-3090"
    name: str  # as reported by the driver: "NVIDIA A100-SXM4-80GB"
    memory_mib: int
    memory_used_mib: int = 0
    utilisation: int | None = None  # percent
    temperature: int | None = None  # Celsius
    problem: str | None = None
    used_outside: str | None = None
    processes: tuple[DeviceProcess, ...] = ()

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


@dataclass(frozen=True, slots=True)
class Recomposition:
    """A change of the GPUs of a node, step by step."""

    node: str
    gpus: Mapping[str, int]  # after the change, by type
    steps: tuple[str, ...]  # a sentence for each
    at: int  # the current step; after the last: finished
    error: str | None = None  # why the current step failed; it is retried
