"""What the benchmarks ask of every system."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

GIVE_UP_SECONDS = 600
# How often an output file is looked at: well below every latency that is measured.
LOOK_SECONDS = 0.001


class PeerFailed(Exception):
    """The system did not do what was asked; its figures are left out of the table."""


@dataclass(frozen=True)
class FirstLine:
    """One job that prints a line: when the submit was answered and when the line could be read."""

    submit_seconds: float
    """From the call to its answer."""
    line_seconds: float
    """From the answer to the visible line."""


class Peer(Protocol):
    """`up` starts from an empty store; every other verb needs `up` first; `down` stops what `up` started."""

    name: ClassVar[str]

    def available(self) -> str | None:
        """Why it cannot run here, or None."""

    def up(self) -> None: ...

    def down(self) -> None:
        """Safe to call twice, and after an `up` that failed."""

    def one_by_one(self, count: int) -> float:
        """Seconds from the first submit of `count` jobs to the last one's end, one request each."""

    def bulk(self, count: int) -> float | None:
        """The same in one request; None where the system has no such form."""

    def first_line(self) -> FirstLine:
        """Submit one job that prints a line; return when it is over."""

    def server_pids(self) -> dict[str, int]:
        """The processes that stay while nothing runs, by name."""


class GpuPeer(Peer, Protocol):
    """A system whose node has made-up GPUs; every job asks for one of them."""

    def run_program(self, program: Path, count: int) -> None:
        """Run it that many times, submitted in one request; return when the last one is over."""


def wait_for_line(folder: Path, pattern: str) -> float:
    """Wait for a file of that name to hold a line; when that was seen, as `time.perf_counter` tells it."""
    return wait_for_file(folder, pattern, holding=b"\n")


def wait_for_file(folder: Path, pattern: str, holding: bytes = b"") -> float:
    """Wait for a file of that name with that content in it; when it was seen."""
    deadline = time.perf_counter() + GIVE_UP_SECONDS
    while (now := time.perf_counter()) < deadline:
        if any(holding in path.read_bytes() for path in folder.glob(pattern)):
            return now
        time.sleep(LOOK_SECONDS)
    raise PeerFailed(f"no {folder}/{pattern} after {GIVE_UP_SECONDS} s")
