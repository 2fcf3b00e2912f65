"""What an engine's accounts say of a job, beside what was seen while it ran. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from heliostat.models import AttemptUsage, Figure, UsageSummary


def in_all(used: Sequence[AttemptUsage]) -> AttemptUsage | None:
    """Over all attempts: the sum of times, the most of memory; None: nothing is known."""
    if not used:
        return None
    return AttemptUsage(
        sum(one.elapsed_seconds for one in used),
        _sum(one.cpu_seconds for one in used),
        max((one.memory_mib for one in used if one.memory_mib is not None), default=None),
        _sum(one.gpu_seconds for one in used),
        any(one.out_of_memory for one in used),
    )


def with_accounts(seen: UsageSummary, accounted: AttemptUsage | None) -> UsageSummary:
    """Looks are few and far between; accounts miss no peak, but know no peak of cpus."""
    if accounted is None or accounted.elapsed_seconds <= 0:
        return seen
    cpus, memory = seen.cpus, seen.memory_mib
    if accounted.cpu_seconds is not None:
        cpus = Figure(round(accounted.cpu_seconds / accounted.elapsed_seconds, 3), cpus.peak, cpus.last)
    if accounted.memory_mib is not None:
        memory = Figure(memory.mean, max(accounted.memory_mib, memory.peak or 0.0), memory.last)
    watched = max(seen.sampled_seconds, accounted.elapsed_seconds)
    return replace(seen, sampled_seconds=watched, cpus=cpus, memory_mib=memory)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
