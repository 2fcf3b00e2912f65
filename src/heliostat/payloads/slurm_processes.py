"""Which processes of this machine are part of the Slurm job that this one runs in.

Where Slurm keeps its jobs in cgroups, these say it. Else the environment that a process, or one of its ancestors,
had at its start says it: by the job's number or, in a container, by Heliostat's mark. Only processes that this
user may look into count, so nobody can pass for somebody else's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

_GROUP = re.compile(r"/job_(\d+)(?:/|$)", re.MULTILINE)
_MOST_ANCESTORS = 64


class SlurmJobProcesses:
    def __init__(self, number: str, mark: str) -> None:
        """`number` is the job's in Slurm, `mark` Heliostat's of the attempt."""
        self._number = number
        self._words = {word.encode() for word in (f"SLURM_JOB_ID={number}", f"HELIOSTAT_MARK={mark}")}
        self._has_groups = number in _groups(os.getpid())

    def includes(self, pid: int) -> bool:
        if not _is_ours(pid):
            return False
        if self._has_groups:
            return self._number in _groups(pid)
        for _ in range(_MOST_ANCESTORS):
            environment = _environment(pid)
            if self._words & environment:
                return True
            if any(word.startswith(b"SLURM_JOB_ID=") for word in environment):
                return False
            pid = _parent(pid)
            if pid <= 1:
                return False
        return False


def all_pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _is_ours(pid: int) -> bool:
    """Root may look into everybody's; what others have in their environment proves nothing then."""
    try:
        return os.geteuid() != 0 or os.stat(f"/proc/{pid}").st_uid == 0
    except OSError:
        return False


def _groups(pid: int) -> set[str]:
    """The numbers of the Slurm jobs in whose cgroups it is."""
    return set(_GROUP.findall(_read(pid, "cgroup").decode("utf-8", "replace")))


def _environment(pid: int) -> set[bytes]:
    return set(_read(pid, "environ").split(b"\0"))


def _parent(pid: int) -> int:
    """0: it is gone. The name before the last bracket may hold anything."""
    words = _read(pid, "stat").rpartition(b")")[2].split()
    return int(words[1]) if len(words) > 1 else 0


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:  # it has just ended, or is somebody else's
        return b""
