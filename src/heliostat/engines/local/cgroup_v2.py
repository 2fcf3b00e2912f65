"""cgroup v2: one hierarchy, in which each level enables the controllers of the level below."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from heliostat.engines.local import cgroup_files as files
from heliostat.engines.local.process_usage import ProcessUsage, read_process_usage

if TYPE_CHECKING:
    from heliostat.engines.local.cgroups import CgroupLimits

_CONTROLLERS = ("cpu", "memory", "pids")
_PERIOD_MICROSECONDS = 100_000


class CgroupV2:
    def __init__(self, folder: str, available_files: frozenset[str]) -> None:
        self._folder = folder
        self._files = available_files
        self.enter_files: tuple[str, ...] = (f"{folder}/cgroup.procs",)

    def pids(self) -> list[int]:
        return files.read_pids(self._folder)

    def kill(self, timeout_seconds: float = 2.0) -> bool:
        if self._is_empty():
            return True
        # cgroup.kill (Linux 5.14) kills all processes, so it must not be used on our own cgroup.
        if "cgroup.kill" not in self._files or os.getpid() in self.pids():
            return files.kill_until_empty(self.pids, self._freeze, self._thaw, timeout_seconds)
        files.write_if_exists(f"{self._folder}/cgroup.kill", "1")
        return files.wait_until(self._is_empty, timeout_seconds)

    def signal(self, signal_number: int) -> None:
        files.signal_all(self.pids, signal_number)

    def oom_kills(self) -> int:
        # Includes nested cgroups, also removed ones.
        return files.parse_counter(files.read_file(f"{self._folder}/memory.events"), "oom_kill")

    def memory_peak_mib(self) -> int | None:
        # Linux 5.19
        return files.mib_rounded_up(files.read_file(f"{self._folder}/memory.peak"))

    def usage(self) -> ProcessUsage:
        cpu_stat = files.read_file(f"{self._folder}/cpu.stat")
        memory_stat = files.read_file(f"{self._folder}/memory.stat") if "memory.stat" in self._files else ""
        if not cpu_stat or not memory_stat:
            measured = read_process_usage(self.pids(), with_memory=not memory_stat)
        return ProcessUsage(
            files.parse_counter(cpu_stat, "usage_usec") / 1e6 if cpu_stat else measured.cpu_seconds,
            files.sum_counters(memory_stat, ("anon", "shmem")) / files.MIB if memory_stat else measured.memory_mib,
        )

    def remove(self) -> bool:
        return files.remove_folder(self._folder)

    def _is_empty(self) -> bool:
        # One read covers nested cgroups, so that no process can move from one to another meanwhile.
        return files.parse_counter(files.read_file(f"{self._folder}/cgroup.events"), "populated") == 0

    def _freeze(self) -> None:
        if "cgroup.freeze" not in self._files:
            return
        files.write_if_exists(f"{self._folder}/cgroup.freeze", "1")
        files.wait_until(self._is_frozen, 0.2)

    def _thaw(self) -> None:
        if "cgroup.freeze" in self._files:
            files.write_if_exists(f"{self._folder}/cgroup.freeze", "0")

    def _is_frozen(self) -> bool:
        return files.parse_counter(files.read_file(f"{self._folder}/cgroup.events"), "frozen") == 1


class CgroupV2Tree:
    def __init__(self, folder: str, enabled: frozenset[str]) -> None:
        """`enabled`: the controllers of the cgroups inside the folder."""
        self._folder = folder
        # Except for other controllers, our folder has the same files as the cgroups inside it.
        self._files = frozenset(
            name for name in os.listdir(folder) if name.partition(".")[0] in enabled | {"cgroup"}
        )
        self.controllers = frozenset(name for name in _CONTROLLERS if f"{name}.max" in self._files)
        missing = ", ".join(name for name in _CONTROLLERS if name not in self.controllers)
        self.description = f"cgroup v2 at {folder}" + (f", without {missing}" if missing else "")

    def create(self, name: str, limits: CgroupLimits) -> CgroupV2:
        folder = f"{self._folder}/{files.require_group_name(name)}"
        group = CgroupV2(folder, self._files)
        is_new = files.make_folder(folder)
        try:
            for file, text in self._settings(limits, is_new):
                files.write_file(f"{folder}/{file}", text)
        except OSError:
            group.remove()
            raise
        return group

    def find(self, name: str) -> CgroupV2 | None:
        folder = f"{self._folder}/{files.require_group_name(name)}"
        return CgroupV2(folder, self._files) if os.path.isdir(folder) else None

    def names(self) -> list[str]:
        return files.list_group_names(self._folder)

    def remove(self) -> bool:
        return not self.names() and files.remove_folder(self._folder)

    def _settings(self, limits: CgroupLimits, is_new: bool) -> Iterator[tuple[str, str]]:
        memory = "max" if limits.memory_mib is None else str(limits.memory_mib * files.MIB)
        settings = (
            ("memory.max", memory),
            ("memory.swap.max", "max" if limits.memory_mib is None else "0"),
            # Out of memory ends the whole job: otherwise the remaining processes of a training run would hang in
            # their next collective call and keep the GPUs. The wrapper is outside the cgroup and reports the end.
            ("memory.oom.group", "1"),
            (
                "cpu.max",
                "max" if limits.cpus is None else f"{limits.cpus * _PERIOD_MICROSECONDS} {_PERIOD_MICROSECONDS}",
            ),
            ("pids.max", "max" if limits.pids is None else str(limits.pids)),
        )
        for file, text in settings:
            if file in self._files and not (is_new and text == "max"):
                yield file, text


def open_tree(instance: str, root: str) -> CgroupV2Tree:
    """Create or open our folder at the highest level where that is permitted. Raises OSError with a file name.

    Root uses the top. Other users use what systemd has delegated to them (user@UID.service), provided that we run
    inside it: moving a process requires write access to the common ancestor of its old and new cgroup.
    """
    refusal = OSError(errno.EACCES, os.strerror(errno.EACCES), root)
    for base in _candidate_folders(root):
        if not os.access(f"{base}/cgroup.procs", os.W_OK, effective_ids=True):
            continue
        folder = f"{base}/heliostat-{instance}"
        try:
            files.make_folder(folder)
        except OSError as error:
            refusal = error
            continue
        _enable(base)
        # While a controller is enabled here, systemd cannot disable it above us: the kernel returns EBUSY.
        return CgroupV2Tree(folder, _enable(folder))
    raise refusal


def own_cgroup() -> str:
    """The path of our own cgroup in the hierarchy; starts with a slash."""
    for line in files.read_file("/proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            return line.removeprefix("0::")
    return "/"


def _candidate_folders(root: str) -> Iterator[str]:
    yield root
    folder_path = root
    names = own_cgroup().strip("/").split("/")
    if ".." in names:  # outside of our cgroup namespace, so not reachable
        return
    for name in filter(None, names):
        folder_path = f"{folder_path}/{name}"
        yield folder_path


def _enable(folder: str) -> frozenset[str]:
    """Enable our controllers for the cgroups inside the folder, as far as possible. Returns those enabled."""
    offered = files.read_file(f"{folder}/cgroup.controllers").split()
    controllers = [name for name in _CONTROLLERS if name in offered]
    if _try_enable(folder, controllers):
        return frozenset(controllers)
    # If one is refused (cpu, while there are real-time processes), the kernel enables none of the line.
    return frozenset(name for name in controllers if _try_enable(folder, [name]))


def _try_enable(folder: str, controllers: list[str]) -> bool:
    if not controllers:
        return True
    try:
        files.write_file(f"{folder}/cgroup.subtree_control", " ".join(f"+{name}" for name in controllers))
    except OSError:
        return False
    return True
