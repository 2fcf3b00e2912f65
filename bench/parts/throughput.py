"""Jobs per second: no-op jobs, from the first submit to the last end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median

from bench.cpu_use import seconds_of
from bench.figures import Figure
from bench.parts.each_peer import Turns
from bench.peers import Peer
from bench.settings import Settings

PART = "throughput"
JOBS_BELOW = ("Heliostat", "HyperQueue")  # the jobs of others are not children of the processes that stay

_REST_SECONDS = 1.0  # what stays a moment for the next job counts with its server once it has ended


@dataclass
class _Runs:
    """Of one system in one form."""

    rates: list[float] = field(default_factory=list)
    cpu_seconds: float = 0.0
    jobs: int = 0

    def add(self, peer: Peer, run: Callable[[int], float | None], count: int) -> None:
        before = seconds_of(peer.server_pids().values())
        seconds = run(count)
        if seconds is None:
            return
        time.sleep(_REST_SECONDS)
        self.rates.append(count / seconds)
        self.cpu_seconds += seconds_of(peer.server_pids().values()) - before
        self.jobs += count

    def note(self, name: str) -> str:
        words = f"{min(self.rates):.0f} to {max(self.rates):.0f} in {len(self.rates)} turns"
        if name in JOBS_BELOW:
            words += f"; {1000 * self.cpu_seconds / self.jobs:.1f} ms of processor time a job"
        return words


def measure(settings: Settings) -> Iterator[Figure]:
    turns = Turns(PART, "higher")
    forms: dict[str, dict[str, _Runs]] = {"one by one": {}, "one request": {}}

    def turn(peer: Peer) -> None:
        if peer.name not in forms["one by one"]:
            peer.first_line()  # the first job pays for what is loaded on demand
        for form, run in zip(forms.values(), (peer.one_by_one, peer.bulk), strict=True):
            form.setdefault(peer.name, _Runs()).add(peer, run, settings.jobs)

    there = turns.take(settings.repeat, turn)
    yield from turns.missing
    for form, runs in forms.items():
        for peer in there:
            yield _figure(form, peer.name, runs[peer.name], forms["one by one"][peer.name])


def _figure(form: str, name: str, runs: _Runs, only_form: _Runs) -> Figure:
    if not runs.rates:
        words = "has no such form: one by one"
        return Figure(PART, form, name, median(only_form.rates), "jobs/s", "higher", words)
    return Figure(PART, form, name, median(runs.rates), "jobs/s", "higher", runs.note(name))
