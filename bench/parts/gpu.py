"""Jobs that need one GPU each: how many a second, how soon one starts, how long a GPU is idle between two."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

from bench.figures import Figure
from bench.parts import latency
from bench.parts.each_peer import Turns
from bench.parts.throughput import Rates
from bench.peers import GpuPeer, PeerFailed, gpu_peers
from bench.settings import WORK, Settings

PART = "gpu"
QUEUED_JOBS = 200
MEDIAN, P95 = "GPU idle between two queued jobs, median", "GPU idle between two queued jobs, p95"
# bash itself knows the time; to start `date` may take as long as what is measured. A short line is appended whole.
PROGRAM = """\
#!/bin/bash
began=$EPOCHREALTIME
sleep 0.05
echo "$CUDA_VISIBLE_DEVICES $began $EPOCHREALTIME" >>{runs}
"""


def measure(settings: Settings) -> Iterator[Figure]:
    turns = Turns(PART, "higher")
    rates, idle = Rates(PART, settings.jobs), IdleTimes(WORK / "gpu")

    def turn(peer: GpuPeer) -> None:
        rates.take_turn(peer)
        idle.take_turn(peer)

    there = turns.take(gpu_peers(), settings.repeat, turn)
    yield from turns.missing
    yield from rates.figures(there)
    yield from idle.figures(there)
    yield from latency.measure_on(gpu_peers(), PART, settings.tries)


@dataclass(frozen=True)
class Run:
    """What one job said of itself."""

    gpu: str
    began: float
    ended: float


class IdleTimes:
    """From the end of a job to the start of the next one on the same GPU, as the jobs themselves note it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._idle_ms: dict[str, list[float]] = defaultdict(list)

    def take_turn(self, peer: GpuPeer) -> None:
        self._folder.mkdir(exist_ok=True)
        program, runs = self._folder / "program", self._folder / "runs"
        runs.write_text("")
        program.write_text(PROGRAM.format(runs=runs))
        program.chmod(0o755)
        peer.run_program(program, QUEUED_JOBS)
        found = [Run(gpu, float(began), float(ended)) for gpu, began, ended in map(str.split, runs.open())]
        if len(found) != QUEUED_JOBS:
            raise PeerFailed(f"{len(found)} of {QUEUED_JOBS} jobs noted their times")
        self._idle_ms[peer.name] += idle_ms(found)

    def figures(self, chosen: Sequence[GpuPeer]) -> Iterator[Figure]:
        for peer in chosen:
            found = self._idle_ms[peer.name]
            note = f"of {len(found)}; {min(found):.1f} to {max(found):.0f}"
            yield Figure(PART, MEDIAN, peer.name, median(found), "ms", "lower", note)
        for peer in chosen:
            p95 = quantiles(self._idle_ms[peer.name], n=20, method="inclusive")[-1]
            yield Figure(PART, P95, peer.name, p95, "ms", "lower")


def idle_ms(runs: Sequence[Run]) -> list[float]:
    by_gpu: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.began):
        by_gpu[run.gpu].append(run)
    return [1000 * (later.began - earlier.ended) for one in by_gpu.values() for earlier, later in pairwise(one)]
