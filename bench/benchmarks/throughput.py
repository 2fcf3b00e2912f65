"""Jobs per second: no-op jobs, from the first submit to the last end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.benchmarks.each_peer import Turns
from bench.cpu_usage import total_cpu_seconds
from bench.measurements import Measurement
from bench.peers import Peer, peers
from bench.settings import Settings

BENCHMARK = "throughput"
SYSTEMS_WITH_CHILD_JOBS = (
    "Heliostat",
    "HyperQueue",
)  # the jobs of others are not children of the processes that stay

_REST_SECONDS = 1.0  # what stays a moment for the next job counts with its server once it has ended


@dataclass
class _Runs:
    """Of one system in one form."""

    rates: list[float] = field(default_factory=list)
    cpu_seconds: float = 0.0
    jobs: int = 0

    def add(self, peer: Peer, run: Callable[[int], float | None], count: int) -> None:
        before = total_cpu_seconds(peer.server_pids().values())
        seconds = run(count)
        if seconds is None:
            return
        time.sleep(_REST_SECONDS)
        self.rates.append(count / seconds)
        self.cpu_seconds += total_cpu_seconds(peer.server_pids().values()) - before
        self.jobs += count

    def note(self, name: str) -> str:
        words = f"{min(self.rates):.0f} to {max(self.rates):.0f} in {len(self.rates)} turns"
        if name in SYSTEMS_WITH_CHILD_JOBS:
            words += f"; {1000 * self.cpu_seconds / self.jobs:.1f} ms of processor time a job"
        return words


def measure(settings: Settings) -> Iterator[Measurement]:
    turns, rates = Turns(BENCHMARK, "higher"), ThroughputRates(BENCHMARK, settings.jobs)
    there = turns.take(peers(), settings.repeat, rates.run_round)
    yield from turns.missing
    yield from rates.measurements(there)


class ThroughputRates:
    """Of every system, in both forms."""

    def __init__(self, part: str, jobs: int) -> None:
        self._part, self._jobs = part, jobs
        self._forms: dict[str, dict[str, _Runs]] = {"one by one": {}, "one request": {}}

    def run_round(self, peer: Peer) -> None:
        if peer.name not in self._forms["one by one"]:
            peer.first_line()  # the first job pays for what is loaded on demand
        for form, run in zip(self._forms.values(), (peer.one_by_one, peer.bulk), strict=True):
            form.setdefault(peer.name, _Runs()).add(peer, run, self._jobs)

    def measurements(self, chosen: Sequence[Peer]) -> Iterator[Measurement]:
        for form, runs in self._forms.items():
            for peer in chosen:
                yield self._figure(form, peer.name, runs[peer.name])

    def _figure(self, form: str, name: str, runs: _Runs) -> Measurement:
        note = runs.note(name) if runs.rates else "has no such form: one by one"
        rates = runs.rates or self._forms["one by one"][name].rates
        return Measurement(self._part, form, name, median(rates), "jobs/s", "higher", note)
