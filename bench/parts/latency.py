"""How soon a job's first line can be read on an idle system."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from statistics import median, quantiles

from bench.figures import Figure
from bench.parts.each_peer import on_each_peer
from bench.peers import FirstLine, Peer, peers
from bench.settings import Settings

PART = "latency"
# Schedulers that work on a timer of a second would meet tries in a row always in the same moment of it.
LONGEST_PAUSE_SECONDS = 1.0
MEASURES = ("answer to line, median", "answer to line, p95", "call to line, median")


def measure(settings: Settings) -> Iterator[Figure]:
    return measure_on(peers(), PART, settings.tries)


def measure_on(chosen: Sequence[Peer], part: str, tries: int) -> Iterator[Figure]:
    figures = on_each_peer(chosen, part, "lower", lambda peer: _of(peer, part, tries))
    return iter(sorted(figures, key=lambda figure: MEASURES.index(figure.measure) if figure.measure else -1))


def _of(peer: Peer, part: str, tries: int) -> Iterator[Figure]:
    lines = _lines(peer, tries)
    waits = [line.line_seconds * 1000 for line in lines]
    calls = [(line.submit_seconds + line.line_seconds) * 1000 for line in lines]
    values = (median(waits), quantiles(waits, n=20, method="inclusive")[-1], median(calls))
    for name, value in zip(MEASURES, values, strict=True):
        yield Figure(part, name, peer.name, value, "ms", "lower")


def _lines(peer: Peer, tries: int) -> list[FirstLine]:
    """A try that does not count, then the others, each after a pause drawn alike for every system."""
    peer.first_line()
    pauses = random.Random(0)
    lines = []
    for _ in range(tries):
        time.sleep(pauses.uniform(0, LONGEST_PAUSE_SECONDS))
        lines.append(peer.first_line())
    return lines
