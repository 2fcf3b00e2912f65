"""What it costs to watch a Slurm on which little happens: some jobs run or wait, one begins now and then.

7,000 jobs a month are one in six minutes: what is spent while nothing happens is nearly all there is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.cpu_use import of_process
from bench.figures import OURS, Figure
from bench.parts.slurm import HeliostatOnSlurm
from bench.peers import PeerFailed
from bench.peers.slurm import Slurm
from bench.settings import Settings

PART = "slurm-month"
WATCHED = 5  # as many run as the machine has cores, the others wait
SECONDS = 60
JOBS_A_MONTH, MONTH_SECONDS = 7_000, 30 * 86_400
_FEW = 20  # jobs one after the other


def measure(settings: Settings) -> Iterator[Figure]:
    slurm = Slurm()
    if reason := slurm.available():
        yield Figure(PART, "", OURS, None, "", "lower", f"no Slurm: {reason}")
        return
    heliostat = HeliostatOnSlurm(slurm)
    try:
        slurm.up()
        heliostat.up()
        yield from list(_figures(slurm, heliostat))
    except PeerFailed as error:
        yield Figure(PART, "", OURS, None, "", "lower", str(error))
    finally:
        heliostat.down()
        slurm.down()


def _figures(slurm: Slurm, heliostat: HeliostatOnSlurm) -> Iterator[Figure]:
    """Of the server with all it calls, and of slurmctld, which answers."""
    pids = {OURS: heliostat.server_pids()["server"], "slurmctld": slurm.server_pids()["slurmctld"]}
    before = of_process(pids[OURS])
    for _ in range(_FEW):
        heliostat.client.submit(["true"]).wait()
    each = (of_process(pids[OURS]) - before) / _FEW
    heliostat.client.submit_many([{"command": ["sleep", "600"]}] * WATCHED)
    time.sleep(5)  # until the first of them run and are known to
    spent = {name: of_process(pid) for name, pid in pids.items()}
    time.sleep(SECONDS)
    idle = {name: 100 * (of_process(pid) - spent[name]) / SECONDS for name, pid in pids.items()}
    for name, share in idle.items():
        note = f"{WATCHED} jobs run or wait, {SECONDS} s"
        yield Figure(PART, "watching while nothing happens", name, share, "% of a core", "lower", note)
    yield Figure(
        PART, "a job from its submission to its end", OURS, 1000 * each, "ms of cpu", "lower", "one at a time"
    )
    monthly = 100 * each * JOBS_A_MONTH / MONTH_SECONDS
    yield Figure(
        PART, "7,000 jobs a month", OURS, idle[OURS] + monthly, "% of a core", "lower", "with the watching"
    )
