"""Where and when a run was made: a figure means little without it."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path

from bench.settings import job_slots


def describe_machine() -> str:
    """One line: processor, cores, memory, system, Python, date, and how busy the machine was before."""
    load = Path("/proc/loadavg").read_text().split()[0]
    memory_gib = int(_field("/proc/meminfo", "MemTotal").split()[0]) / 1024**2
    parts = (
        _field("/proc/cpuinfo", "model name") or platform.machine(),
        f"{job_slots()} cores",
        f"{memory_gib:.0f} GiB",
        platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        f"Linux {platform.release()}",
        f"Python {platform.python_version()}",
        f"load before {load}",
        datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    return ", ".join(parts)


def _field(path: str, name: str) -> str:
    """The value of a `name : value` line, or nothing."""
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
