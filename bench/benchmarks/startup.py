"""How long a command takes that does nothing but print its help."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from bench.measurements import OUR_SYSTEM, Measurement
from bench.peers.heliostat import HELIO
from bench.private_slurm import PrivateSlurm
from bench.settings import WORK_FOLDER, Settings, job_slots

BENCHMARK = "startup"
METRIC = "command line, median"
COMMANDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (OUR_SYSTEM, (str(HELIO), "--help")),
    ("Slurm sinfo", ("sinfo", "--help")),
    ("Slurm squeue", ("squeue", "--help")),
    ("task-spooler", ("tsp", "-h")),
    ("Python alone", (sys.executable, "-c", "pass")),
)


def measure(settings: Settings) -> Iterator[Measurement]:
    env = _environment()
    for system, command in COMMANDS:
        try:
            _seconds(command, env)  # from here on the files are in the page cache
            times = [_seconds(command, env) * 1000 for _ in range(settings.starts)]
        except (OSError, subprocess.SubprocessError) as error:
            yield Measurement(BENCHMARK, METRIC, system, None, "", "lower", f"not available: {error}")
            continue
        spread = f"{' '.join(command[1:])}; {min(times):.1f} to {max(times):.1f}"
        yield Measurement(BENCHMARK, METRIC, system, median(times), "ms", "lower", spread)


def _environment() -> Mapping[str, str]:
    """Slurm's commands read their configuration first, even for --help, and fail without one."""
    slurm = PrivateSlurm(WORK_FOLDER / "slurm", job_slots())
    if slurm.unavailable_reason() is None:
        slurm.configure()
    return slurm.env


def _seconds(command: Sequence[str], env: Mapping[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began
