"""What one look at a real Slurm with a long queue costs: the whole question, and our part of it.

Half of the jobs are known as ours, half as those of others. A job array is split into single jobs by setting
something of each, which is quicker than to submit them one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from bench.measurements import OUR_SYSTEM, Measurement
from bench.private_slurm import PrivateSlurm, SlurmNotStarted
from bench.settings import WORK_FOLDER, Settings, job_slots
from heliostat.engines.slurm.client import SlurmClient, clean_environment
from heliostat.engines.slurm.command_output import SlurmJob
from heliostat.engines.slurm.explain import QueueOrder
from heliostat.engines.slurm.foreign_jobs import ForeignJobs

BENCHMARK = "slurm-observe"
JOBS = 10_000
_SPLIT_AT_ONCE = 500


def measure(settings: Settings) -> Iterator[Measurement]:
    slurm = PrivateSlurm(WORK_FOLDER / "slurm", job_slots())
    what = f"one look at {JOBS:,} queued jobs"
    if missing := slurm.unavailable_reason():
        yield Measurement(BENCHMARK, what, OUR_SYSTEM, None, "ms", "lower", f"no Slurm: {missing}")
        return
    try:
        slurm.up()
        fill_queue(slurm, JOBS)
        yield from _looks(SlurmClient(WORK_FOLDER / "look.lock", clean_environment(slurm.env)), settings.repeat)
    except SlurmNotStarted as error:
        yield Measurement(BENCHMARK, what, OUR_SYSTEM, None, "ms", "lower", f"Slurm did not start: {error}")
    finally:
        slurm.down()


def fill_queue(slurm: PrivateSlurm, jobs: int) -> None:
    said = slurm.run("sbatch", "--parsable", "--hold", "-o/dev/null", f"--array=0-{jobs - 1}", "--wrap", "true")
    number = said.strip()
    for first in range(0, jobs - 1, _SPLIT_AT_ONCE):
        last = min(first + _SPLIT_AT_ONCE, jobs - 1) - 1
        slurm.run("scontrol", "update", f"JobId={number}_[{first}-{last}]", "Nice=1")


def _looks(client: SlurmClient, repeat: int) -> Iterator[Measurement]:
    jobs = client.jobs()
    numbers = list(jobs)
    others, ours = ForeignJobs(client), set(numbers[::2])
    others.refresh(jobs, ours)  # names are asked once
    whole = _best(client.jobs, repeat)
    words = f"{len(jobs):,} queued jobs"
    yield Measurement(
        BENCHMARK, f"one look at {words}", OUR_SYSTEM, whole[0], "ms", "lower", "squeue and reading it"
    )
    yield Measurement(
        BENCHMARK,
        f"our part of it, {words}",
        OUR_SYSTEM,
        whole[1],
        "ms",
        "lower",
        "time of one core, without squeue",
    )
    place = _best(lambda: _ask(jobs, numbers[-1]), repeat)[1]
    yield Measurement(
        BENCHMARK, f"why and where in line, {words}", OUR_SYSTEM, place, "ms", "lower", "once a look, if asked"
    )
    look = _best(lambda: others.refresh(jobs, ours), repeat)[1]
    yield Measurement(
        BENCHMARK, f"those of others, {words}", OUR_SYSTEM, look, "ms", "lower", "every five seconds"
    )


def _ask(jobs: dict[int, SlurmJob], number: int) -> object:
    return QueueOrder(jobs).wait_reason(number)


def _best(work: Callable[[], object], repeat: int) -> tuple[float, float]:
    """The quickest of some tries, in ms: by the clock, and of this thread."""
    times = []
    for _ in range(max(3, repeat)):
        began, worked = time.perf_counter(), time.thread_time()
        work()
        times.append(((time.perf_counter() - began) * 1000, (time.thread_time() - worked) * 1000))
    return min(wall for wall, _ in times), min(own for _, own in times)
