"""What one run of the benchmarks measures, and where it may write."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

WORK_FOLDER = Path(__file__).resolve().parent / ".work"
GPU_COUNT = 4
"""Made-up GPUs of each system in the gpu part, and so the jobs it runs at once there."""


@dataclass(frozen=True)
class Settings:
    jobs: int = 500
    """How many no-op jobs a throughput run submits."""
    repeat: int = 5
    """Turns of each system in the throughput and gpu parts; the median counts."""
    tries: int = 30
    """Latency tries per system, also in the gpu part."""
    starts: int = 20
    """Starts per command in the start-up part."""


def job_slots() -> int:
    """Jobs each system may run at once: the cores this process may use."""
    return len(os.sched_getaffinity(0))
