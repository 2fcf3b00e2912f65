"""What one look at a real Slurm with a long queue costs: the whole question, and our part of it.

Half of the jobs are known as ours, half as those of others. A job array is split into single jobs by setting
something of each, which is quicker than to submit them one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from bench.figures import OURS, Figure
from bench.settings import WORK, Settings, slots
from bench.slurm_up import PrivateSlurm, SlurmNotStarted
from heliostat.engines.slurm.client import SlurmClient, clean
from heliostat.engines.slurm.explain import QueueOrder
from heliostat.engines.slurm.foreign_jobs import ForeignJobs
from heliostat.engines.slurm.parse import SlurmJob

PART = "slurm-observe"
JOBS = 10_000
_SPLIT_AT_ONCE = 500


def measure(settings: Settings) -> Iterator[Figure]:
    slurm = PrivateSlurm(WORK / "slurm", slots())
    what = f"one look at {JOBS:,} queued jobs"
    if missing := slurm.missing():
        yield Figure(PART, what, OURS, None, "ms", "lower", f"no Slurm: {missing}")
        return
    try:
        slurm.up()
        _fill(slurm)
        yield from _looks(SlurmClient(WORK / "look.lock", clean(slurm.env)), settings.repeat)
    except SlurmNotStarted as error:
        yield Figure(PART, what, OURS, None, "ms", "lower", f"Slurm did not start: {error}")
    finally:
        slurm.down()


def _fill(slurm: PrivateSlurm) -> None:
    said = slurm.run("sbatch", "--parsable", "--hold", "-o/dev/null", f"--array=0-{JOBS - 1}", "--wrap", "true")
    number = said.strip()
    for first in range(0, JOBS - 1, _SPLIT_AT_ONCE):
        last = min(first + _SPLIT_AT_ONCE, JOBS - 1) - 1
        slurm.run("scontrol", "update", f"JobId={number}_[{first}-{last}]", "Nice=1")


def _looks(client: SlurmClient, repeat: int) -> Iterator[Figure]:
    jobs = client.jobs()
    numbers = list(jobs)
    others, ours = ForeignJobs(client), set(numbers[::2])
    others.look(jobs, ours)  # names are asked once
    whole = _best(client.jobs, repeat)
    words = f"{len(jobs):,} queued jobs"
    yield Figure(PART, f"one look at {words}", OURS, whole[0], "ms", "lower", "squeue and reading it")
    yield Figure(
        PART, f"our part of it, {words}", OURS, whole[1], "ms", "lower", "time of one core, without squeue"
    )
    place = _best(lambda: _ask(jobs, numbers[-1]), repeat)[1]
    yield Figure(PART, f"why and where in line, {words}", OURS, place, "ms", "lower", "once a look, if asked")
    look = _best(lambda: others.look(jobs, ours), repeat)[1]
    yield Figure(PART, f"those of others, {words}", OURS, look, "ms", "lower", "every five seconds")


def _ask(jobs: dict[int, SlurmJob], number: int) -> object:
    return QueueOrder(jobs).waiting(number)


def _best(work: Callable[[], object], repeat: int) -> tuple[float, float]:
    """The quickest of some tries, in ms: by the clock, and of this thread."""
    times = []
    for _ in range(max(3, repeat)):
        began, worked = time.perf_counter(), time.thread_time()
        work()
        times.append(((time.perf_counter() - began) * 1000, (time.thread_time() - worked) * 1000))
    return min(wall for wall, _ in times), min(own for _, own in times)
