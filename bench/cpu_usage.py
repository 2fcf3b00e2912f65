"""Processor time of running processes and of what they have waited for, from the kernel's own sums."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_FIRST, _LAST = 11, 15  # utime, stime, cutime, cstime, counted after the name, which may hold spaces


def total_cpu_seconds(pids: Iterable[int]) -> float:
    """Of these, of ourselves, and of all that each has started and waited for. It only grows."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    waited_for = resource.getrusage(resource.RUSAGE_CHILDREN)
    ours = own.ru_utime + own.ru_stime + waited_for.ru_utime + waited_for.ru_stime
    return ours + sum(process_cpu_seconds(pid) for pid in pids)


def process_cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[_FIRST:_LAST])) / _TICKS
