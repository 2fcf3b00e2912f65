"""Run a measurement on every system: one after the other, or by turns."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from bench.measurements import Measurement
from bench.peers import Peer, PeerFailed

Better = Literal["higher", "lower"]
AnyPeer = TypeVar("AnyPeer", bound=Peer)
_FAILURES = (PeerFailed, OSError, subprocess.SubprocessError)


def on_each_peer(
    peers: Sequence[AnyPeer], part: str, better: Better, measure: Callable[[AnyPeer], Iterable[Measurement]]
) -> Iterator[Measurement]:
    """Only one of them is up at a time. A system that is not there, or fails, is one figure that says so: never
    the end of the run."""
    for peer in peers:
        reason = peer.available()
        if reason is not None:
            yield _missing(part, better, peer, reason)
            continue
        try:
            peer.up()
            # All or nothing: half a system's figures would compare badly.
            yield from list(measure(peer))
        except _FAILURES as error:
            yield _missing(part, better, peer, _why(error))
        finally:
            peer.down()


@dataclass
class Turns:
    """All are up at once and take turns, so that each meets the machine when it is quick and when it is slow."""

    part: str
    better: Better
    missing: list[Measurement] = field(default_factory=list)

    def take(self, peers: Sequence[AnyPeer], rounds: int, turn: Callable[[AnyPeer], None]) -> list[AnyPeer]:
        """Those that took all their turns."""
        with ExitStack() as at_the_end:
            for peer in peers:
                at_the_end.callback(peer.down)
            there = [peer for peer in peers if self._does(peer, _start)]
            for _ in range(rounds):
                there = [peer for peer in there if self._does(peer, turn)]
        return there

    def _does(self, peer: AnyPeer, act: Callable[[AnyPeer], None]) -> bool:
        try:
            act(peer)
        except _FAILURES as error:
            self.missing.append(_missing(self.part, self.better, peer, _why(error)))
            return False
        return True


def _start(peer: Peer) -> None:
    if reason := peer.available():
        raise PeerFailed(reason)
    peer.up()


def _missing(part: str, better: Better, peer: Peer, why: str) -> Measurement:
    return Measurement(part, "", peer.name, None, "", better, f"not available: {why}")


def _why(error: Exception) -> str:
    """In one line; a failed command's own words where it left any."""
    words = str(getattr(error, "stderr", None) or error).strip().splitlines()
    return words[-1] if words else type(error).__name__
