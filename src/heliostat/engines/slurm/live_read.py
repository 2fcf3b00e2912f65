"""What `sstat` prints of running jobs, as records: pure. A line that cannot be read is no line."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from heliostat.engines.slurm.numbers import ElementNumber, read_number
from heliostat.engines.slurm.quantities import resources_in, size_in_mib, span_in_seconds

LIVE_FIELDS = ("JobID", "TRESUsageInTot")
"""None that a user could fill with text of their own."""


@dataclass(frozen=True, slots=True)
class Live:
    """What a job uses, all its tasks together."""

    cpu_seconds: float = 0.0  # since it started
    memory_mib: float = 0.0
    gpu_percent: float | None = None  # of all its GPUs: 200 are two full ones; None: Slurm does not say
    gpu_memory_mib: float | None = None


def lives_of_sstat(text: str) -> dict[int, Live]:
    """By job, of lines of LIVE_FIELDS: one for each step. Jobs have the numbers Slurm has for them inside, also
    elements of arrays."""
    found: dict[int, Live] = {}
    for line in text.splitlines():
        step, _, used = line.partition("|")
        number = read_number(step.partition(".")[0])
        if number is not None and (live := _of_step(resources_in(used.rstrip("|")))):
            found[number] = _together(found.get(number, Live()), live)
    return found


def inner_numbers(text: str) -> dict[int, int]:
    """Of lines `JobArrayID|JobID|` of squeue: the number Slurm has inside for each element of an array."""
    pairs = (line.split("|")[:2] for line in text.splitlines() if line.count("|") >= 1)
    read = ((read_number(shown), read_number(inner)) for shown, inner in pairs)
    return {shown: inner for shown, inner in read if shown is not None and inner is not None}


def by_known_number(
    numbers: Iterable[int], lives: Mapping[int, Live], inner: Mapping[int, int]
) -> dict[int, Live]:
    """The same by the numbers we know them by."""
    named = {number: inner.get(number) if isinstance(number, ElementNumber) else number for number in numbers}
    return {number: lives[key] for number, key in named.items() if key is not None and key in lives}


def _of_step(used: Mapping[str, str]) -> Live | None:
    cpu, memory = span_in_seconds(used.get("cpu", "")), size_in_mib(used.get("mem", ""))
    if cpu is None and memory is None:
        return None
    percent = size_in_mib(used.get("gres/gpuutil", ""))  # a plain number, which is read as one of bytes
    gpu_memory = size_in_mib(used.get("gres/gpumem", ""))
    return Live(cpu or 0.0, memory or 0.0, None if percent is None else percent * 2**20, gpu_memory)


def _together(one: Live, other: Live) -> Live:
    return Live(
        one.cpu_seconds + other.cpu_seconds,
        one.memory_mib + other.memory_mib,
        _sum(one.gpu_percent, other.gpu_percent),
        _sum(one.gpu_memory_mib, other.gpu_memory_mib),
    )


def _sum(one: float | None, other: float | None) -> float | None:
    return one if other is None else other if one is None else one + other
