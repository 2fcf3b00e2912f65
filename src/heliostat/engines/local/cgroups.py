"""Control groups (cgroups): one per attempt, to limit its resources, measure its usage and kill its processes.

    find_cgroups ──> CgroupTree ──create/find──> Cgroup
                └──> CgroupsUnavailable, with the reason

All cgroups of an installation are in one folder, `heliostat-INSTANCE`, at the top of the hierarchy: restarts of
the service or of systemd do not affect them, and limits of the service do not apply to jobs.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from heliostat.engines.local import cgroup_v1, cgroup_v2
from heliostat.engines.local.process_usage import ProcessUsage

_INSTANCE = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """Limits of an attempt; None: unlimited."""

    memory_mib: int | None = None  # without swap
    cpus: int | None = None
    pids: int | None = None  # processes and threads


class Cgroup(Protocol):
    """The processes of one attempt. A cgroup that does not exist counts as empty and causes no error."""

    enter_files: tuple[str, ...]  # a single-threaded process enters by writing "0" into each, in this order

    def pids(self) -> list[int]:
        """The processes inside, including nested cgroups."""

    def kill(self, timeout_seconds: float = 2.0) -> bool:
        """KILL all processes inside, including those that fork at this moment. True if the cgroup is empty.

        False after the timeout: usually a process hangs in a driver or on an unreachable file server. Processes
        that enter later are not killed: `remove` the cgroup to prevent that.
        """

    def signal(self, signal_number: int) -> None:
        """Signal all processes inside, and no others."""

    def oom_kills(self) -> int:
        """How many processes the kernel has killed because memory ran out."""

    def memory_peak_mib(self) -> int | None:
        """Peak memory usage, including the page cache; None: not measured."""

    def usage(self) -> ProcessUsage:
        """Usage so far. Raises OSError."""

    def remove(self) -> bool:
        """Remove the cgroup and nested ones. True also if it does not exist; False while processes are left."""


class CgroupTree(Protocol):
    """The cgroups of one installation."""

    description: str
    controllers: frozenset[str]  # of memory, cpu and pids: those whose limits the kernel enforces

    def create(self, name: str, limits: CgroupLimits) -> Cgroup:
        """Create the cgroup, or set the limits of the existing one. Raises OSError.

        Limits without a controller are skipped. The name consists of digits and dots, for example "12.1".
        """

    def find(self, name: str) -> Cgroup | None:
        """An existing cgroup, for example of an earlier server process."""

    def names(self) -> Sequence[str]:
        """All existing cgroups, unordered; including partially removed ones."""

    def remove(self) -> bool:
        """Remove the folder of the installation if no cgroup is left in it."""


@dataclass(frozen=True, slots=True)
class CgroupsUnavailable:
    """No cgroups can be created on this machine."""

    reason: str  # cause and next step


def find_cgroups(instance: str, root: Path = Path("/sys/fs/cgroup")) -> CgroupTree | CgroupsUnavailable:
    """The cgroup tree of this installation, created if needed."""
    if not _INSTANCE.fullmatch(instance):
        raise ValueError(f"an instance name consists of letters, digits, - and _, unlike {instance!r}")
    try:
        if (root / "cgroup.controllers").exists():
            return cgroup_v2.open_tree(instance, str(root))
        return cgroup_v1.open_tree(instance, str(root))
    except OSError as error:
        return CgroupsUnavailable(_reason(error))


def _reason(error: OSError) -> str:
    cause = f"Jobs run without limits, because {error.filename} cannot be used: {error.strerror}."
    if os.geteuid() == 0:
        return f"{cause} Mount a writable cgroup file system there; in a container, enable it in the runtime."
    return f"{cause} Run Heliostat as root, or, with cgroup v2, as a service of `systemctl --user`."
