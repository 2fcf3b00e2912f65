"""The machines of a Slurm to be, as frozen records."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class GpuSpec:
    type: str
    device_files: tuple[str, ...]  # /dev/nvidia0, ...

    @property
    def count(self) -> int:
        return len(self.device_files)


@dataclass(frozen=True)
class NodeSpec:
    name: str
    cpus: int
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    memory_mib: int
    gpus: tuple[GpuSpec, ...] = ()
    features: tuple[str, ...] = ()
    configured_hostname: str = ""  # what `hostname -s` says there; empty: its name
    address: str = ""
    port: int | None = None  # of slurmd, where it is not Slurm's own

    @property
    def hostname(self) -> str:
        return self.configured_hostname or self.name


@dataclass(frozen=True)
class PartitionSpec:
    name: str
    nodes: tuple[str, ...] = ()  # none: all
    is_default: bool = False
    max_minutes: int | None = None


@dataclass(frozen=True)
class Ports:
    controller: int = 6817
    accounting: int = 6819
    database: int = 3306


@dataclass(frozen=True)
class ClusterSpec:
    cluster: str
    controller: str  # what `hostname -s` says there
    nodes: tuple[NodeSpec, ...]
    partitions: tuple[PartitionSpec, ...] = (PartitionSpec("main", is_default=True),)
    controller_address: str = ""
    ports: Ports = Ports()
    settings: dict[str, str] = field(default_factory=dict)  # lines of slurm.conf that win over ours

    @property
    def has_gpus(self) -> bool:
        return any(machine.gpus for machine in self.nodes)
