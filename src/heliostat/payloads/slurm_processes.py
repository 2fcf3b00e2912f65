"""Processes of a Slurm job on this node, found from inside the job.

With cgroups, a process is in the job's cgroup. Without, the environment at the start of the process or of one of
its ancestors has the job's number or, in a container, Heliostat's mark. Only processes of this user are
considered, so processes of other users cannot claim to be part of the job.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

_GROUP = re.compile(r"/job_(\d+)(?:/|$)", re.MULTILINE)
_MAX_ANCESTORS = 64


class SlurmJobProcesses:
    def __init__(self, number: str, mark: str) -> None:
        """`number`: SLURM_JOB_ID; `mark`: HELIOSTAT_MARK of the attempt."""
        self._number = number
        self._words = {word.encode() for word in (f"SLURM_JOB_ID={number}", f"HELIOSTAT_MARK={mark}")}
        self._has_groups = number in _groups(os.getpid())

    def includes(self, pid: int) -> bool:
        if not _is_ours(pid):
            return False
        if self._has_groups:
            return self._number in _groups(pid)
        for _ in range(_MAX_ANCESTORS):
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
    """Root can read the environment of all processes, but only that of its own processes is trusted."""
    try:
        return os.geteuid() != 0 or os.stat(f"/proc/{pid}").st_uid == 0
    except OSError:
        return False


def _groups(pid: int) -> set[str]:
    """The numbers of the Slurm jobs whose cgroups contain the process."""
    return set(_GROUP.findall(_read(pid, "cgroup").decode("utf-8", "replace")))


def _environment(pid: int) -> set[bytes]:
    return set(_read(pid, "environ").split(b"\0"))


def _parent(pid: int) -> int:
    """The parent's pid; 0: the process has ended. The name in brackets may itself contain brackets."""
    words = _read(pid, "stat").rpartition(b")")[2].split()
    return int(words[1]) if len(words) > 1 else 0


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:  # it has just ended, or belongs to another user
        return b""
