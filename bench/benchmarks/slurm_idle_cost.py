"""What it costs to watch a Slurm on which little happens: some jobs run or wait, one begins now and then.

7,000 jobs a month are one in six minutes: what is spent while nothing happens is nearly all there is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.benchmarks.slurm import HeliostatOnSlurm
from bench.cpu_usage import process_cpu_seconds
from bench.measurements import OUR_SYSTEM, Measurement
from bench.peers import PeerFailed
from bench.peers.slurm import Slurm
from bench.settings import Settings

BENCHMARK = "slurm-month"
WATCHED_JOBS = 5  # as many run as the machine has cores, the others wait
MEASURED_SECONDS = 60
JOBS_PER_MONTH, MONTH_SECONDS = 7_000, 30 * 86_400
_FEW = 20  # jobs one after the other


def measure(settings: Settings) -> Iterator[Measurement]:
    slurm = Slurm()
    if reason := slurm.available():
        yield Measurement(BENCHMARK, "", OUR_SYSTEM, None, "", "lower", f"no Slurm: {reason}")
        return
    heliostat = HeliostatOnSlurm(slurm)
    try:
        slurm.up()
        heliostat.up()
        yield from list(_figures(slurm, heliostat))
    except PeerFailed as error:
        yield Measurement(BENCHMARK, "", OUR_SYSTEM, None, "", "lower", str(error))
    finally:
        heliostat.down()
        slurm.down()


def _figures(slurm: Slurm, heliostat: HeliostatOnSlurm) -> Iterator[Measurement]:
    """Of the server with all it calls, and of slurmctld, which answers."""
    pids = {OUR_SYSTEM: heliostat.server_pids()["server"], "slurmctld": slurm.server_pids()["slurmctld"]}
    before = process_cpu_seconds(pids[OUR_SYSTEM])
    for _ in range(_FEW):
        heliostat.client.submit(["true"]).wait()
    each = (process_cpu_seconds(pids[OUR_SYSTEM]) - before) / _FEW
    heliostat.client.submit_many([{"command": ["sleep", "600"]}] * WATCHED_JOBS)
    time.sleep(5)  # until the first of them run and are known to
    spent = {name: process_cpu_seconds(pid) for name, pid in pids.items()}
    time.sleep(MEASURED_SECONDS)
    idle = {name: 100 * (process_cpu_seconds(pid) - spent[name]) / MEASURED_SECONDS for name, pid in pids.items()}
    for name, share in idle.items():
        note = f"{WATCHED_JOBS} jobs run or wait, {MEASURED_SECONDS} s"
        yield Measurement(BENCHMARK, "watching while nothing happens", name, share, "% of a core", "lower", note)
    yield Measurement(
        BENCHMARK,
        "a job from its submission to its end",
        OUR_SYSTEM,
        1000 * each,
        "ms of cpu",
        "lower",
        "one at a time",
    )
    monthly = 100 * each * JOBS_PER_MONTH / MONTH_SECONDS
    yield Measurement(
        BENCHMARK,
        "7,000 jobs a month",
        OUR_SYSTEM,
        idle[OUR_SYSTEM] + monthly,
        "% of a core",
        "lower",
        "with the watching",
    )
