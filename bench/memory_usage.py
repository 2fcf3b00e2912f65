"""Memory of running processes, from the kernel's own sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MemoryUsage:
    pss_mib: float
    """Proportional set size: a page shared by n processes counts 1/n for each, so sums are honest."""
    rss_mib: float
    """Resident set size: what `ps` shows; counts shared pages once per process."""


def process_tree_memory(pid: int) -> MemoryUsage:
    """A process with all its descendants."""
    uses = [_of_process(each) for each in _tree(pid)]
    return MemoryUsage(sum(use.pss_mib for use in uses), sum(use.rss_mib for use in uses))


def _of_process(pid: int) -> MemoryUsage:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kib = {key: int(rest.split()[0]) for key, _, rest in (line.partition(":") for line in lines)}
    return MemoryUsage(kib["Pss"] / 1024, kib["Rss"] / 1024)


def _tree(pid: int) -> Iterable[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _tree(int(child))
