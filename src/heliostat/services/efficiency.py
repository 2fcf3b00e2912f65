"""What a job used of what it asked for, in words. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from heliostat.models import AttemptUsage, Job, SeriesStatistics, UsageSummary

MIN_RUN_SECONDS = 120.0  # that a job must have run to be judged
IDLE_PERCENT = 5.0  # a GPU that is busy for less was not used
LOW_UTILISATION_PERCENT = 30.0  # GPUs that are busy for less mostly wait for something
_LITTLE = 0.5  # of what was asked for
_SMALL_MIB = 4096.0  # memory not worth a word
_GIB = 1024.0
_NOTHING_KNOWN = "nothing is known of what it used"


@dataclass(frozen=True, slots=True)
class RequestedResources:
    """By all tasks of a job together."""

    cpus: int
    memory_mib: int
    gpus: float

    @classmethod
    def from_job(cls, job: Job) -> "RequestedResources":
        tasks, wanted = job.placement.tasks, job.resources
        return cls(wanted.cpus * tasks, wanted.memory_mib * tasks, wanted.gpus * tasks)


@dataclass(frozen=True, slots=True)
class EfficiencyReport:
    """`sentences` are for people; none of them ends with a full stop."""

    sentences: tuple[str, ...]
    judged: bool = False  # False: too little is known
    wasteful: bool = False  # something was asked for and hardly used
    gpus_used: int | None = None  # None: it has none, or nothing is known of them

    @property
    def text(self) -> str:
        return "; ".join(self.sentences)


def assess_efficiency(asked: RequestedResources, used: UsageSummary, run_seconds: float) -> EfficiencyReport:
    """What to say of a job that has run for so long."""
    if run_seconds <= 0:
        return EfficiencyReport(("it has not run yet",))
    if used.sampled_seconds <= 0:
        return EfficiencyReport((_NOTHING_KNOWN,))
    if run_seconds < MIN_RUN_SECONDS:
        return EfficiencyReport(("it has run too short a time to be judged",))
    gpus_used = _gpus_used(used)
    complaints = [*_about_gpus(asked, used, gpus_used), *_about_memory(asked, used), *_about_cpus(asked, used)]
    if complaints:
        return EfficiencyReport(tuple(complaints), True, True, gpus_used)
    facts = list(_facts(asked, used))
    if not facts:
        return EfficiencyReport((_NOTHING_KNOWN,))
    return EfficiencyReport((f"used {', '.join(facts)}",), True, False, gpus_used)


def _gpus_used(used: UsageSummary) -> int | None:
    means = [device.utilisation.mean for device in used.devices if device.utilisation.mean is not None]
    return sum(mean >= IDLE_PERCENT for mean in means) if means else None


def _about_gpus(asked: RequestedResources, used: UsageSummary, gpus_used: int | None) -> Iterator[str]:
    count = len(used.devices)
    if gpus_used is None or not count:
        return
    if gpus_used < count:
        some = f"used {gpus_used} of {count} GPUs" if gpus_used else f"used none of its {count} GPUs"
        yield some if count > 1 else "did not use its GPU"
        return
    busy = _mean_utilisation(used)
    # Of a part of a GPU nobody can tell how much of the rest was others' work.
    if busy is not None and busy < LOW_UTILISATION_PERCENT and asked.gpus >= 1:
        yield f"kept its {'GPU' if count == 1 else f'{count} GPUs'} busy only {busy:.0f}% of the time"


def _about_memory(asked: RequestedResources, used: UsageSummary) -> Iterator[str]:
    peak = used.memory_mib.peak
    if peak is not None and peak < asked.memory_mib * _LITTLE and asked.memory_mib - peak > _SMALL_MIB:
        yield f"asked for {_gb(asked.memory_mib)} of memory, used {_gb(peak)}"


def _about_cpus(asked: RequestedResources, used: UsageSummary) -> Iterator[str]:
    most = _busy_cpus(used)
    if most is not None and most < asked.cpus * _LITTLE and asked.cpus - most >= 2:
        yield f"asked for {asked.cpus} cpus, used {_cores(most)}"


def _facts(asked: RequestedResources, used: UsageSummary) -> Iterator[str]:
    """What there is nothing to say against."""
    busy, count = _mean_utilisation(used), len(used.devices)
    if busy is not None:
        yield f"{'its GPU' if count == 1 else f'its {count} GPUs'} {busy:.0f}% of the time"
    if (cpus := _busy_cpus(used)) is not None:
        yield f"{_cores(cpus)} of {asked.cpus} {'cpu' if asked.cpus == 1 else 'cpus'}"
    if used.memory_mib.peak is not None:
        yield f"{_gb(used.memory_mib.peak)} of {_gb(asked.memory_mib)} of memory"


def _mean_utilisation(used: UsageSummary) -> float | None:
    means = [device.utilisation.mean for device in used.devices if device.utilisation.mean is not None]
    return sum(means) / len(means) if means else None


def _busy_cpus(used: UsageSummary) -> float | None:
    """At most; on average, where only that is known."""
    return used.cpus.mean if used.cpus.peak is None else used.cpus.peak


def _cores(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _gb(mib: float) -> str:
    """`64 GB`, `0.5 GB`, `200 MB`: as people say it; a GB is 1024 MB here as everywhere in Heliostat."""
    if mib < _GIB / 2:
        return f"{mib:.0f} MB"
    return (f"{mib / _GIB:.0f}" if mib >= 10 * _GIB else f"{mib / _GIB:.1f}".removesuffix(".0")) + " GB"


def total_attempt_usage(used: Sequence[AttemptUsage]) -> AttemptUsage | None:
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


def merge_accounting_usage(seen: UsageSummary, accounting_usage: AttemptUsage | None) -> UsageSummary:
    """Looks are few and far between; accounts miss no peak, but know no peak of cpus."""
    if accounting_usage is None or accounting_usage.elapsed_seconds <= 0:
        return seen
    cpus, memory = seen.cpus, seen.memory_mib
    if accounting_usage.cpu_seconds is not None:
        cpus = SeriesStatistics(
            round(accounting_usage.cpu_seconds / accounting_usage.elapsed_seconds, 3), cpus.peak, cpus.last
        )
    if accounting_usage.memory_mib is not None:
        memory = SeriesStatistics(memory.mean, max(accounting_usage.memory_mib, memory.peak or 0.0), memory.last)
    watched = max(seen.sampled_seconds, accounting_usage.elapsed_seconds)
    return replace(seen, sampled_seconds=watched, cpus=cpus, memory_mib=memory)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
