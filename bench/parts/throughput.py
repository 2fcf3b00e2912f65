"""Jobs per second: no-op jobs, from the first submit to the last end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median

from bench.cpu_use import seconds_of
from bench.figures import Figure
from bench.parts.each_peer import on_each_peer
from bench.peers import Peer
from bench.settings import Settings

PART = "throughput"
JOBS_BELOW = ("Heliostat", "HyperQueue")  # the jobs of others are not children of the processes that stay

_REST_SECONDS = 1.0  # what stays a moment for the next job counts with its server once it has ended


def measure(settings: Settings) -> Iterator[Figure]:
    figures = on_each_peer(PART, "higher", lambda peer: _of(peer, settings))
    return iter(sorted(figures, key=lambda figure: figure.measure))


def _of(peer: Peer, settings: Settings) -> Iterator[Figure]:
    peer.first_line()  # the first job pays for what is loaded on demand
    forms: dict[str, Callable[[int], float | None]] = {
        "one by one": peer.one_by_one,
        "one request": peer.bulk,
    }
    only_form = 0.0
    for form, run in forms.items():
        before = seconds_of(peer.server_pids().values())
        rates = [settings.jobs / seconds for _ in range(settings.repeat) if (seconds := run(settings.jobs))]
        if not rates:
            yield Figure(PART, form, peer.name, only_form, "jobs/s", "higher", "has no such form: one by one")
            continue
        only_form = median(rates)
        time.sleep(_REST_SECONDS)
        spent = seconds_of(peer.server_pids().values()) - before
        spread = f"{min(rates):.0f} to {max(rates):.0f} in {len(rates)} runs"
        if peer.name in JOBS_BELOW:
            spread += f"; {1000 * spent / (settings.jobs * len(rates)):.1f} ms of processor time a job"
        yield Figure(PART, form, peer.name, median(rates), "jobs/s", "higher", spread)
