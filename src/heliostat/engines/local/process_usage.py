"""CPU and memory usage of processes, read from /proc: for nodes without cgroups or without their accounting."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20
_MAX_DEPTH = 64  # of parents


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """Usage of an attempt so far; None: unknown."""

    cpu_seconds: float | None = None
    memory_mib: float | None = None  # without the page cache


def read_process_usage(pids: Iterable[int], with_memory: bool = True) -> ProcessUsage:
    """Total usage of these processes, including their ended children."""
    processes = [process for pid in pids if (process := _read(pid))]
    if not processes:
        return ProcessUsage()
    memory_mib = sum(_memory_mib(process.pid) for process in processes) if with_memory else None
    return ProcessUsage(sum(process.cpu_seconds for process in processes), memory_mib)


def read_usage_of_trees(leaders: Mapping[str, int]) -> dict[str, ProcessUsage]:
    """Usage of the descendants and the session of each leader, without the leader itself. Reads /proc once."""
    processes = {pid: process for pid in _all_pids() if (process := _read(pid))}
    owners = {pid: name for name, pid in leaders.items()}
    members: defaultdict[str, list[int]] = defaultdict(list)
    for pid in processes.keys() - owners.keys():
        if (name := _owner(pid, processes, owners)) is not None:
            members[name].append(pid)
    return {
        name: ProcessUsage(sum(processes[pid].cpu_seconds for pid in pids), sum(_memory_mib(pid) for pid in pids))
        for name, pids in members.items()
    }


def host_cpu_seconds() -> float:
    """Busy time of all cpus of this machine since its boot."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _iowait, *interrupts = map(int, file.readline().split()[1:9])
    return (user + nice + system + sum(interrupts)) / _TICKS


def host_memory_used_mib() -> float:
    """Memory of this machine that is not available to programs."""
    values = {}
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            name, _, value = line.partition(":")
            values[name] = int(value.split()[0])
            if name == "MemAvailable":
                break
    return (values["MemTotal"] - values["MemAvailable"]) / 1024


class _Process(NamedTuple):
    pid: int
    parent: int
    session: int
    cpu_seconds: float  # with those of the children it has waited for


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _read(pid: int) -> _Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(4096)
    except OSError:
        return None  # it has ended, or no descriptor is free
    # The last bracket ends the name; then comes field 3 of proc(5).
    fields = text[text.rfind(b")") + 2 :].split(None, 16)
    if len(fields) < 16:
        return None
    return _Process(pid, int(fields[1]), int(fields[3]), sum(map(int, fields[11:15])) / _TICKS)


def _memory_mib(pid: int) -> float:
    """Private memory: memory shared with other processes or mapped from files is not counted."""
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
            _size, resident, shared, *_ = file.read(256).split()
    except (OSError, ValueError):
        return 0.0
    return max(0, int(resident) - int(shared)) * _PAGE_MIB


def _owner(pid: int, processes: Mapping[int, _Process], owners: Mapping[int, str]) -> str | None:
    """The leader among the ancestors. A process whose parent has ended is still found by its session."""
    for _ in range(_MAX_DEPTH):
        if pid not in processes:
            break
        process = processes[pid]
        name = owners.get(process.session) or owners.get(process.parent)
        if name is not None:
            return name
        pid = process.parent
    return None
