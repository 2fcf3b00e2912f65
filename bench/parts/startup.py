"""How long a command takes that does nothing but print its help."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from bench.figures import OURS, Figure
from bench.peers.heliostat import HELIO
from bench.settings import WORK, Settings, slots
from bench.slurm_up import PrivateSlurm

PART = "startup"
MEASURE = "command line, median"
COMMANDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (OURS, (str(HELIO), "--help")),
    ("Slurm sinfo", ("sinfo", "--help")),
    ("Slurm squeue", ("squeue", "--help")),
    ("task-spooler", ("tsp", "-h")),
    ("Python alone", (sys.executable, "-c", "pass")),
)


def measure(settings: Settings) -> Iterator[Figure]:
    env = _environment()
    for system, command in COMMANDS:
        try:
            _seconds(command, env)  # from here on the files are in the page cache
            times = [_seconds(command, env) * 1000 for _ in range(settings.starts)]
        except (OSError, subprocess.SubprocessError) as error:
            yield Figure(PART, MEASURE, system, None, "", "lower", f"not available: {error}")
            continue
        spread = f"{' '.join(command[1:])}; {min(times):.1f} to {max(times):.1f}"
        yield Figure(PART, MEASURE, system, median(times), "ms", "lower", spread)


def _environment() -> Mapping[str, str]:
    """Slurm's commands read their configuration first, even for --help, and fail without one."""
    slurm = PrivateSlurm(WORK / "slurm", slots())
    if slurm.missing() is None:
        slurm.configure()
    return slurm.env


def _seconds(command: Sequence[str], env: Mapping[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began
