"""Machines that run jobs, and their devices."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from heliostat.models.states import NodeState


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process seen on a device."""

    pid: int
    memory_mib: int = 0
    user: str | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU. `problem` and `used_outside` keep it from being handed out, and say why in words."""

    uuid: str
    index: int
    type: str  # short and typable: "A100", "RTX-3090"
    name: str  # as the driver says it: "NVIDIA A100-SXM4-80GB"
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
    """A machine that runs jobs."""

    name: str
    cpus: int
    memory_mib: int
    devices: tuple[Device, ...] = ()
    state: NodeState = NodeState.UP
    reason: str | None = None  # why it is drained or down
    labels: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # "No GPU found: CPU jobs run."
    data_class: int = 0  # cleared for data up to this class
    min_data_class: int = 0  # kept for jobs of at least this class
    splits_devices: bool = False  # several jobs may share one of its GPUs
    driver: str | None = None  # the version of its GPUs' driver, if it is known


@dataclass(frozen=True, slots=True)
class Recomposition:
    """GPUs of a node being added or taken away, step by step."""

    node: str
    gpus: Mapping[str, int]  # that it will have, by type
    steps: tuple[str, ...]  # a sentence for each
    at: int  # the step that is being done; past the last: it is done
    error: str | None = None  # why the step has not worked yet; it is tried again
