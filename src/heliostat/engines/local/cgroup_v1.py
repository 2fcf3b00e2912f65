"""cgroup v1: one hierarchy per controller, so a cgroup has a folder in each of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from heliostat.engines.local import cgroup_files as files
from heliostat.engines.local.process_usage import ProcessUsage, read_process_usage

if TYPE_CHECKING:
    from heliostat.engines.local.cgroups import CgroupLimits

# In the order in which a payload enters them: pids first, since it can stop forks, which is needed to kill
# reliably. The freezer is for machines without the pids controller; each hierarchy costs every job about 0.1 ms.
_HIERARCHIES = ("pids", "cpu", "memory")
_INSTEAD_OF_PIDS = "freezer"
_LIMIT_FILES = {"memory": "memory.limit_in_bytes", "cpu": "cpu.cfs_quota_us", "pids": "pids.max"}
_PERIOD_MICROSECONDS = 100_000  # the kernel's default, so it is not written
_UNLIMITED = frozenset({"-1", "max"})  # defaults of a new cgroup


class CgroupV1:
    def __init__(self, folders: dict[str, str], counts_cpu: bool = False) -> None:
        """`folders`: the cgroup's folder in each hierarchy; that of cpu may include cpuacct."""
        self._by_controller = folders
        self._counts_cpu = counts_cpu
        self._folders = tuple(dict.fromkeys(folders.values()))  # one mount can hold several controllers
        # Writing to `tasks` moves a single thread without a lock that costs `cgroup.procs` 5 to 10 ms after a
        # pause.
        self.enter_files = tuple(f"{folder}/tasks" for folder in self._folders)

    def pids(self) -> list[int]:
        # The union, since a payload may have entered only some of the folders yet.
        return sorted({pid for folder in self._folders for pid in files.read_pids(folder)})

    def kill(self, timeout_seconds: float = 2.0) -> bool:
        if not self.pids():
            return True
        return files.kill_until_empty(self.pids, self._freeze, self._thaw, timeout_seconds)

    def signal(self, signal_number: int) -> None:
        files.signal_all(self.pids, signal_number)

    def oom_kills(self) -> int:
        # Unlike v2, a v1 cgroup does not count events of nested cgroups.
        return sum(
            files.parse_counter(files.read_file(f"{folder}/memory.oom_control"), "oom_kill")
            for folder in self._nested_memory_folders()
        )

    def memory_peak_mib(self) -> int | None:
        if "memory" not in self._by_controller:
            return None
        return files.mib_rounded_up(files.read_file(f"{self._by_controller['memory']}/memory.max_usage_in_bytes"))

    def usage(self) -> ProcessUsage:
        cpu = files.read_file(f"{self._by_controller['cpu']}/cpuacct.usage") if self._counts_cpu else ""
        folder = self._by_controller.get("memory")
        memory_stat = "" if folder is None else files.read_file(f"{folder}/memory.stat")
        if not cpu or not memory_stat:
            measured = read_process_usage(files.read_pids(self._folders[0]), with_memory=not memory_stat)
        return ProcessUsage(
            int(cpu) / 1e9 if cpu else measured.cpu_seconds,
            files.sum_counters(memory_stat, ("total_rss", "total_shmem")) / files.MIB
            if memory_stat
            else measured.memory_mib,
        )

    def remove(self) -> bool:
        removed = [files.remove_folder(folder) for folder in self._folders]
        return all(removed)

    def _nested_memory_folders(self) -> list[str]:
        return (
            files.folder_and_descendants(self._by_controller["memory"]) if "memory" in self._by_controller else []
        )

    def _freeze(self) -> None:
        """Prevent forks; without the pids controller, freeze the processes."""
        if "pids" in self._by_controller:
            for folder in files.folder_and_descendants(self._by_controller["pids"]):
                files.write_if_exists(f"{folder}/pids.max", "0")
        if "freezer" not in self._by_controller:
            return
        state = f"{self._by_controller['freezer']}/freezer.state"
        files.write_if_exists(state, "FROZEN")
        # A process that hangs in the kernel never freezes, but it does not fork either.
        files.wait_until(lambda: files.read_file(state) != "FREEZING\n", 0.2)

    def _thaw(self) -> None:
        # A frozen v1 process cannot die, so this must follow the signal.
        if "freezer" in self._by_controller:
            files.write_if_exists(f"{self._by_controller['freezer']}/freezer.state", "THAWED")


class CgroupV1Tree:
    def __init__(self, bases: dict[str, str]) -> None:
        """`bases`: the installation's folder in each hierarchy."""
        self._bases = bases
        self._folders = tuple(dict.fromkeys(bases.values()))
        # Our folder has the same files as the cgroups inside it, so they are listed once.
        self._files = frozenset(name for folder in self._folders for name in os.listdir(folder))
        self.controllers = frozenset(name for name, file in _LIMIT_FILES.items() if file in self._files)
        missing = ", ".join(sorted(_LIMIT_FILES.keys() - self.controllers))
        first = self._folders[0]
        self.description = f"cgroup v1 at {first} and alike" + (f", without {missing}" if missing else "")

    def create(self, name: str, limits: CgroupLimits) -> CgroupV1:
        group = self._group(files.require_group_name(name))
        try:
            made = [files.make_folder(f"{folder}/{name}") for folder in self._folders]
            for file, text in self._settings(limits, all(made)):
                files.write_file(f"{self._bases[file.partition('.')[0]]}/{name}/{file}", text)
        except OSError:
            group.remove()
            raise
        return group

    def find(self, name: str) -> CgroupV1 | None:
        files.require_group_name(name)
        found = any(os.path.isdir(f"{folder}/{name}") for folder in self._folders)
        return self._group(name) if found else None

    def names(self) -> list[str]:
        return list({name for folder in self._folders for name in files.list_group_names(folder)})

    def remove(self) -> bool:
        return not self.names() and all(files.remove_folder(folder) for folder in self._folders)

    def _group(self, name: str) -> CgroupV1:
        folders = {controller: f"{base}/{name}" for controller, base in self._bases.items()}
        return CgroupV1(folders, "cpu" in folders and "cpuacct.usage" in self._files)

    def _settings(self, limits: CgroupLimits, is_new: bool) -> Iterator[tuple[str, str]]:
        memory = "-1" if limits.memory_mib is None else str(limits.memory_mib * files.MIB)
        quota = "-1" if limits.cpus is None else str(limits.cpus * _PERIOD_MICROSECONDS)
        pids = "max" if limits.pids is None else str(limits.pids)
        settings = (
            ("memory.memsw.limit_in_bytes", "-1"),  # first, since it must never be below the next one
            ("memory.limit_in_bytes", memory),
            ("memory.memsw.limit_in_bytes", memory),
            ("cpu.cfs_quota_us", quota),
            ("pids.max", pids),
        )
        for file, text in settings:
            if file in self._files and not (is_new and text in _UNLIMITED):
                yield file, text


def open_tree(instance: str, root: str) -> CgroupV1Tree:
    """Create or open our folder in every permitted hierarchy. Raises OSError, with a file name, if none is."""
    mounts = _mounts(root)
    refusal = OSError(errno.ENOENT, "no cgroup hierarchy is mounted there", root)
    bases = {}
    for controller in _HIERARCHIES if "pids" in mounts else (_INSTEAD_OF_PIDS, *_HIERARCHIES):
        if controller not in mounts:
            continue
        try:
            bases[controller] = _make_base(f"{mounts[controller]}/heliostat-{instance}")
        except OSError as error:
            refusal = error
    if not bases:
        raise refusal
    return CgroupV1Tree(bases)


def _mounts(root: str) -> dict[str, str]:
    """The folder of each controller: one with its name, or a shared one such as `cpu,cpuacct`."""
    mounts = {}
    for entry in os.listdir(root):
        folder = os.path.realpath(f"{root}/{entry}")  # `cpu` is often a link to `cpu,cpuacct`
        if os.path.exists(f"{folder}/cgroup.procs"):
            mounts.update(dict.fromkeys(entry.split(","), folder))
    return mounts


def _make_base(folder: str) -> str:
    files.make_folder(folder)
    if not os.access(f"{folder}/cgroup.procs", os.W_OK, effective_ids=True):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), folder)
    # Before Linux 5.11, limits of a cgroup exclude its children unless use_hierarchy is set before there are any.
    with suppress(OSError):
        if files.read_file(f"{folder}/memory.use_hierarchy").strip() == "0":
            files.write_file(f"{folder}/memory.use_hierarchy", "1")
    return folder
