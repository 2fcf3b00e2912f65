"""How soon a job's first line can be read on an idle system."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from statistics import median, quantiles

from bench.benchmarks.each_peer import on_each_peer
from bench.measurements import Measurement
from bench.peers import FirstLine, Peer, peers
from bench.settings import Settings

BENCHMARK = "latency"
# Schedulers that work on a timer of a second would meet tries in a row always in the same moment of it.
LONGEST_PAUSE_SECONDS = 1.0
METRICS = ("answer to line, median", "answer to line, p95", "call to line, median")


def measure(settings: Settings) -> Iterator[Measurement]:
    return measure_systems(peers(), BENCHMARK, settings.tries)


def measure_systems(chosen: Sequence[Peer], part: str, tries: int) -> Iterator[Measurement]:
    figures = on_each_peer(chosen, part, "lower", lambda peer: _of(peer, part, tries))
    return iter(sorted(figures, key=lambda figure: METRICS.index(figure.metric) if figure.metric else -1))


def _of(peer: Peer, part: str, tries: int) -> Iterator[Measurement]:
    lines = _lines(peer, tries)
    waits = [line.line_seconds * 1000 for line in lines]
    calls = [(line.submit_seconds + line.line_seconds) * 1000 for line in lines]
    values = (median(waits), quantiles(waits, n=20, method="inclusive")[-1], median(calls))
    for name, value in zip(METRICS, values, strict=True):
        yield Measurement(part, name, peer.name, value, "ms", "lower")


def _lines(peer: Peer, tries: int) -> list[FirstLine]:
    """A try that does not count, then the others, each after a pause drawn alike for every system."""
    peer.first_line()
    pauses = random.Random(0)
    lines = []
    for _ in range(tries):
        time.sleep(pauses.uniform(0, LONGEST_PAUSE_SECONDS))
        lines.append(peer.first_line())
    return lines
