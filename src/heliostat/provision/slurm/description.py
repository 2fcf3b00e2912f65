"""The machines of a Slurm to be, as frozen records."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Gpus:
    type: str
    files: tuple[str, ...]  # /dev/nvidia0, ...

    @property
    def count(self) -> int:
        return len(self.files)


@dataclass(frozen=True)
class Machine:
    name: str
    cpus: int
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    memory_mib: int
    gpus: tuple[Gpus, ...] = ()
    features: tuple[str, ...] = ()
    host: str = ""  # what `hostname -s` says there; empty: its name
    address: str = ""
    port: int | None = None  # of slurmd, where it is not Slurm's own

    @property
    def hostname(self) -> str:
        return self.host or self.name


@dataclass(frozen=True)
class Partition:
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
class Description:
    cluster: str
    controller: str  # what `hostname -s` says there
    machines: tuple[Machine, ...]
    partitions: tuple[Partition, ...] = (Partition("main", is_default=True),)
    controller_address: str = ""
    ports: Ports = Ports()
    settings: dict[str, str] = field(default_factory=dict)  # lines of slurm.conf that win over ours

    @property
    def has_gpus(self) -> bool:
        return any(machine.gpus for machine in self.machines)
