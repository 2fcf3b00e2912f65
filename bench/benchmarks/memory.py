"""Memory of the processes that stay while nothing runs."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import memory_usage
from bench.benchmarks.each_peer import on_each_peer
from bench.measurements import Measurement
from bench.peers import Peer, peers
from bench.settings import Settings

BENCHMARK = "memory"
SETTLE_SECONDS = 3


def measure(settings: Settings) -> Iterator[Measurement]:
    del settings
    return on_each_peer(peers(), BENCHMARK, "lower", _of)


def _of(peer: Peer) -> Iterator[Measurement]:
    peer.first_line()  # so that everything a job needs is loaded
    time.sleep(SETTLE_SECONDS)
    uses = {name: memory_usage.process_tree_memory(pid) for name, pid in peer.server_pids().items()}
    note = f"RSS {sum(use.rss_mib for use in uses.values()):.0f} MiB; PSS of " + ", ".join(
        f"{name} {use.pss_mib:.1f}" for name, use in uses.items()
    )
    total = sum(use.pss_mib for use in uses.values())
    yield Measurement(BENCHMARK, "idle, PSS", peer.name, total, "MiB", "lower", note)
