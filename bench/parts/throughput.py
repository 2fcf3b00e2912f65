"""Jobs per second: no-op jobs, from the first submit to the last end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

from bench.figures import Figure
from bench.parts.each_peer import on_each_peer
from bench.peers import Peer
from bench.settings import Settings

PART = "throughput"


def measure(settings: Settings) -> Iterator[Figure]:
    figures = on_each_peer(PART, "higher", lambda peer: _of(peer, settings))
    return iter(sorted(figures, key=lambda figure: figure.measure))


def _of(peer: Peer, settings: Settings) -> Iterator[Figure]:
    peer.first_line()  # the first job pays for what is loaded on demand
    forms: dict[str, Callable[[int], float | None]] = {
        "one by one": peer.one_by_one,
        "one request": peer.bulk,
    }
    for form, run in forms.items():
        rates = [settings.jobs / seconds for _ in range(settings.repeat) if (seconds := run(settings.jobs))]
        if not rates:
            yield Figure(PART, form, peer.name, None, "", "higher", "has no such form")
            continue
        spread = f"{min(rates):.0f} to {max(rates):.0f} in {len(rates)} runs"
        yield Figure(PART, form, peer.name, median(rates), "jobs/s", "higher", spread)
