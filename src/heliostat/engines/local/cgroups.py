"""Control groups: one per attempt, to limit it, to count what it took and to end all of it at once.

    find_cgroups ──> CgroupTree ──create/find──> Group
                └──> NoCgroups, which says why

All groups of an installation live in one folder, `heliostat-INSTANCE`, at the top of the hierarchy: a restart
of the service, or of systemd, leaves them alone, and limits on the service itself do not touch the jobs.
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
    """What an attempt may take; None is as much as there is."""

    memory_mib: int | None = None  # no swap on top of it
    cpus: int | None = None
    pids: int | None = None  # processes and threads


class Cgroup(Protocol):
    """The processes of one attempt. A group that is gone is empty: nothing here fails because of that."""

    enter_files: tuple[str, ...]  # a process with one thread that writes "0" into each, in this order, is inside

    def pids(self) -> list[int]:
        """The processes inside, also in groups the job has made itself."""

    def kill(self, patience_seconds: float = 2.0) -> bool:
        """KILL everything inside, also what forks at this moment. True when the group is empty.

        False when something outlives the patience: usually a process that hangs in a driver or on a dead file
        server. Who enters later is not killed: `remove` the group to shut the door.
        """

    def signal(self, signal_number: int) -> None:
        """Signal everything inside, never a stranger."""

    def oom_kills(self) -> int:
        """How many processes the kernel has killed for want of memory."""

    def memory_peak_mib(self) -> int | None:
        """The most memory that was in use, files in the page cache included; None where nobody counts it."""

    def usage(self) -> ProcessUsage:
        """What it has used so far. OSError when that cannot be read."""

    def remove(self) -> bool:
        """Remove the group and those inside it. Gone is success; False while processes are left in it."""


class CgroupTree(Protocol):
    """The groups of one installation."""

    description: str
    controllers: frozenset[str]  # those of memory, cpu and pids whose limits the kernel will enforce

    def create(self, name: str, limits: CgroupLimits) -> Cgroup:
        """Make the group, or set the limits of the one that is there. OSError when the kernel refuses.

        Limits without their controller are left out. The name is numbers with dots, like "12.1".
        """

    def find(self, name: str) -> Cgroup | None:
        """The group that an earlier run of Heliostat has made."""

    def names(self) -> Sequence[str]:
        """Every group there is, in no order; also one that was removed only in part."""

    def remove(self) -> bool:
        """Remove the folder of the installation, when no group is left in it."""


@dataclass(frozen=True, slots=True)
class CgroupsUnavailable:
    """This machine gives us no control groups."""

    reason: str  # what is wrong, and what to do


def find_cgroups(instance: str, root: Path = Path("/sys/fs/cgroup")) -> CgroupTree | CgroupsUnavailable:
    """The tree of this installation, made when it is not there yet."""
    if not _INSTANCE.fullmatch(instance):
        raise ValueError(f"an instance is named by letters, digits, - and _, not {instance!r}")
    try:
        if (root / "cgroup.controllers").exists():
            return cgroup_v2.open_tree(instance, str(root))
        return cgroup_v1.open_tree(instance, str(root))
    except OSError as error:
        return CgroupsUnavailable(_reason(error))


def _reason(error: OSError) -> str:
    cause = f"Jobs run without limits, since {error.filename} cannot be used: {error.strerror}."
    if os.geteuid() == 0:
        return f"{cause} Mount the cgroup file system there, writable; in a container, ask for it."
    return f"{cause} Run Heliostat as root, or with cgroup v2 as a service of `systemctl --user`."
