"""Run one measurement on every system in turn; only one of them is up at a time."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from bench.figures import Figure
from bench.peers import PEERS, Peer, PeerFailed


def on_each_peer(
    part: str,
    better: Literal["higher", "lower"],
    measure: Callable[[Peer], Iterable[Figure]],
) -> Iterator[Figure]:
    """A system that is not there, or fails, is one figure that says so: never the end of the run."""
    for kind in PEERS:
        peer = kind()
        reason = peer.available()
        if reason is not None:
            yield Figure(part, "", peer.name, None, "", better, f"not available: {reason}")
            continue
        try:
            peer.up()
            # All or nothing: half a system's figures would compare badly.
            yield from list(measure(peer))
        except (PeerFailed, OSError, subprocess.SubprocessError) as error:
            yield Figure(part, "", peer.name, None, "", better, f"not available: {_why(error)}")
        finally:
            peer.down()


def _why(error: Exception) -> str:
    """In one line; a failed command's own words where it left any."""
    words = str(getattr(error, "stderr", None) or error).strip().splitlines()
    return words[-1] if words else type(error).__name__
