"""This machine as a node."""

import os
import socket
from functools import cache
from pathlib import Path

from heliostat.models import Device, Node


@cache
def schedulable_memory_mib() -> int:
    """The memory available to all jobs together: 90% of the total."""
    with open("/proc/meminfo", encoding="ascii") as file:
        total_kib = next(int(line.split()[1]) for line in file if line.startswith("MemTotal:"))
    return total_kib * 9 // 10 // 1024


def resolve_node_name(chosen: str | None) -> str:
    return chosen or socket.gethostname().partition(".")[0]


def gpu_driver_version() -> str | None:
    """The version of the NVIDIA driver; None: not installed."""
    try:
        return Path("/sys/module/nvidia/version").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None


def make_local_node(name: str | None, devices: tuple[Device, ...], notes: tuple[str, ...]) -> Node:
    return Node(
        name=resolve_node_name(name),
        cpus=len(os.sched_getaffinity(0)),
        memory_mib=schedulable_memory_mib(),
        devices=devices,
        notes=notes,
        driver=gpu_driver_version() if devices else None,
    )
