"""Description of a Slurm cluster to set up: nodes, GPUs, partitions and ports, as frozen records."""

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
    configured_hostname: str = ""  # output of `hostname -s` on the node; empty: same as its name
    address: str = ""
    port: int | None = None  # of slurmd; None: Slurm's default

    @property
    def hostname(self) -> str:
        return self.configured_hostname or self.name


@dataclass(frozen=True)
class PartitionSpec:
    name: str
    nodes: tuple[str, ...] = ()  # empty: all
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
    controller: str  # output of `hostname -s` there
    nodes: tuple[NodeSpec, ...]
    partitions: tuple[PartitionSpec, ...] = (PartitionSpec("main", is_default=True),)
    controller_address: str = ""
    ports: Ports = Ports()
    settings: dict[str, str] = field(default_factory=dict)  # of slurm.conf; they override Heliostat's

    @property
    def has_gpus(self) -> bool:
        return any(node.gpus for node in self.nodes)
