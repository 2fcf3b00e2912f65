"""Signals for a container: for what runs in it, not for the tools that hold it.

A tool that dies of a signal takes the container along, or loses its exit code. Who is inside has a process number
there too; the first one inside only looks after the others, and hands on what it is told.
"""

from collections.abc import Iterable, Iterator

from heliostat.engines.local.cgroup_files import signal_all
from heliostat.engines.local.cgroups import Group


def signal_container(group: Group, signal_number: int) -> None:
    """Everything, as long as nothing runs inside yet."""
    if _insiders(group.pids()):
        signal_all(lambda: _insiders(group.pids()), signal_number)
    else:
        group.signal(signal_number)


def first_inside(pids: Iterable[int]) -> Iterator[int]:
    """Of each container, its first process."""
    return (pid for pid in sorted(pids) if len(numbers := _numbers(pid)) > 1 and numbers[-1] == "1")


def _insiders(pids: list[int]) -> list[int]:
    return [pid for pid in pids if len(numbers := _numbers(pid)) > 1 and numbers[-1] != "1"]


def _numbers(pid: int) -> list[str]:
    """That it has: here, and in each namespace below that it is in."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return next((line.split()[1:] for line in file if line.startswith("NSpid:")), [])
    except OSError:
        return []
