"""Jobs that need one GPU each: how many a second, how soon one starts, how long a GPU is idle between two."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

from bench.benchmarks import latency
from bench.benchmarks.each_peer import Turns
from bench.benchmarks.throughput import ThroughputRates
from bench.measurements import Measurement
from bench.peers import GpuPeer, PeerFailed, gpu_peers
from bench.settings import WORK_FOLDER, Settings

BENCHMARK = "gpu"
QUEUED_JOBS = 200
IDLE_MEDIAN, IDLE_P95 = "GPU idle between two queued jobs, median", "GPU idle between two queued jobs, p95"
# bash itself knows the time; to start `date` may take as long as what is measured. A short line is appended whole.
PROGRAM = """\
#!/bin/bash
began=$EPOCHREALTIME
sleep 0.05
echo "$CUDA_VISIBLE_DEVICES $began $EPOCHREALTIME" >>{runs}
"""


def measure(settings: Settings) -> Iterator[Measurement]:
    turns = Turns(BENCHMARK, "higher")
    rates, idle = ThroughputRates(BENCHMARK, settings.jobs), GpuIdleTimes(WORK_FOLDER / "gpu")

    def turn(peer: GpuPeer) -> None:
        rates.run_round(peer)
        idle.run_round(peer)

    there = turns.take(gpu_peers(), settings.repeat, turn)
    yield from turns.missing
    yield from rates.measurements(there)
    yield from idle.measurements(there)
    yield from latency.measure_systems(gpu_peers(), BENCHMARK, settings.tries)


@dataclass(frozen=True)
class JobRun:
    """What one job said of itself."""

    gpu: str
    began: float
    ended: float


class GpuIdleTimes:
    """From the end of a job to the start of the next one on the same GPU, as the jobs themselves note it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._idle_ms: dict[str, list[float]] = defaultdict(list)

    def run_round(self, peer: GpuPeer) -> None:
        self._folder.mkdir(exist_ok=True)
        program, runs = self._folder / "program", self._folder / "runs"
        runs.write_text("")
        program.write_text(PROGRAM.format(runs=runs))
        program.chmod(0o755)
        peer.run_program(program, QUEUED_JOBS)
        found = [JobRun(gpu, float(began), float(ended)) for gpu, began, ended in map(str.split, runs.open())]
        if len(found) != QUEUED_JOBS:
            raise PeerFailed(f"{len(found)} of {QUEUED_JOBS} jobs noted their times")
        self._idle_ms[peer.name] += idle_times_ms(found)

    def measurements(self, chosen: Sequence[GpuPeer]) -> Iterator[Measurement]:
        for peer in chosen:
            found = self._idle_ms[peer.name]
            note = f"of {len(found)}; {min(found):.1f} to {max(found):.0f}"
            yield Measurement(BENCHMARK, IDLE_MEDIAN, peer.name, median(found), "ms", "lower", note)
        for peer in chosen:
            p95 = quantiles(self._idle_ms[peer.name], n=20, method="inclusive")[-1]
            yield Measurement(BENCHMARK, IDLE_P95, peer.name, p95, "ms", "lower")


def idle_times_ms(runs: Sequence[JobRun]) -> list[float]:
    by_gpu: dict[str, list[JobRun]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.began):
        by_gpu[run.gpu].append(run)
    return [1000 * (later.began - earlier.ended) for one in by_gpu.values() for earlier, later in pairwise(one)]
