"""Efficiency reports: resources that a job used, compared with those that it requested."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from heliostat.models import AttemptUsage, Job, SeriesStatistics, UsageSummary
from heliostat.models.amounts import format_count, format_percent, format_size

MIN_RUN_SECONDS = 120.0  # shorter jobs are not assessed
IDLE_PERCENT = 5.0  # a GPU with less utilisation counts as unused
LOW_UTILISATION_PERCENT = 30.0  # GPUs with less utilisation mostly wait for something
_LITTLE = 0.5  # of the requested amount
_SMALL_MIB = 4096.0  # unused memory below this is not reported
_NO_DATA = "no usage data"


@dataclass(frozen=True, slots=True)
class RequestedResources:
    """The sum over all tasks of a job."""

    cpus: int
    memory_mib: int
    gpus: float

    @classmethod
    def from_job(cls, job: Job) -> "RequestedResources":
        tasks, per_task = job.placement.tasks, job.resources
        return cls(per_task.cpus * tasks, per_task.memory_mib * tasks, per_task.gpus * tasks)


@dataclass(frozen=True, slots=True)
class EfficiencyReport:
    """The sentences do not end with a full stop."""

    sentences: tuple[str, ...]
    judged: bool = False  # False: too little data
    wasteful: bool = False  # a requested resource was hardly used
    gpus_used: int | None = None  # None: no GPUs, or no data about them

    @property
    def text(self) -> str:
        return "; ".join(self.sentences)


def assess_efficiency(requested: RequestedResources, used: UsageSummary, run_seconds: float) -> EfficiencyReport:
    """The report for a job that has run for `run_seconds`."""
    if run_seconds <= 0:
        return EfficiencyReport(("it has not run yet",))
    if used.sampled_seconds <= 0:
        return EfficiencyReport((_NO_DATA,))
    if run_seconds < MIN_RUN_SECONDS:
        return EfficiencyReport((f"its run time is below {MIN_RUN_SECONDS:.0f} s, too short for a report",))
    gpus_used = _gpus_used(used)
    complaints = [
        *_gpu_complaints(requested, used, gpus_used),
        *_memory_complaints(requested, used),
        *_cpu_complaints(requested, used),
    ]
    if complaints:
        return EfficiencyReport(tuple(complaints), True, True, gpus_used)
    facts = list(_facts(requested, used))
    if not facts:
        return EfficiencyReport((_NO_DATA,))
    return EfficiencyReport((f"used {', '.join(facts)}",), True, False, gpus_used)


def _gpus_used(used: UsageSummary) -> int | None:
    means = [device.utilisation.mean for device in used.devices if device.utilisation.mean is not None]
    return sum(mean >= IDLE_PERCENT for mean in means) if means else None


def _gpu_complaints(requested: RequestedResources, used: UsageSummary, gpus_used: int | None) -> Iterator[str]:
    count = len(used.devices)
    if gpus_used is None or not count:
        return
    if gpus_used < count:
        some = f"used {gpus_used} of {count} GPUs" if gpus_used else f"used none of its {count} GPUs"
        yield some if count > 1 else "did not use its GPU"
        return
    busy = _mean_utilisation(used)
    # On a shared GPU, the utilisation includes the work of other jobs.
    if busy is not None and busy < LOW_UTILISATION_PERCENT and requested.gpus >= 1:
        gpus = "GPU was" if count == 1 else f"{count} GPUs were"
        yield f"its {gpus} busy only {format_percent(busy / 100)} of the time"


def _memory_complaints(requested: RequestedResources, used: UsageSummary) -> Iterator[str]:
    peak = used.memory_mib.peak
    if peak is not None and peak < requested.memory_mib * _LITTLE and requested.memory_mib - peak > _SMALL_MIB:
        yield f"requested {format_size(requested.memory_mib)} of memory, used {format_size(peak)}"


def _cpu_complaints(requested: RequestedResources, used: UsageSummary) -> Iterator[str]:
    busy_cpus = _busy_cpus(used)
    if busy_cpus is not None and busy_cpus < requested.cpus * _LITTLE and requested.cpus - busy_cpus >= 2:
        yield f"requested {format_count(requested.cpus, 'CPU')}, used {_format_cpus(busy_cpus)}"


def _facts(requested: RequestedResources, used: UsageSummary) -> Iterator[str]:
    """Used amounts, for a job without complaints."""
    busy, count = _mean_utilisation(used), len(used.devices)
    if busy is not None:
        yield f"{'its GPU' if count == 1 else f'its {count} GPUs'} {format_percent(busy / 100)} of the time"
    if (cpus := _busy_cpus(used)) is not None:
        yield f"{_format_cpus(cpus)} of {format_count(requested.cpus, 'CPU')}"
    if used.memory_mib.peak is not None:
        yield f"{format_size(used.memory_mib.peak)} of {format_size(requested.memory_mib)} of memory"


def _mean_utilisation(used: UsageSummary) -> float | None:
    means = [device.utilisation.mean for device in used.devices if device.utilisation.mean is not None]
    return sum(means) / len(means) if means else None


def _busy_cpus(used: UsageSummary) -> float | None:
    """The peak; the mean if no peak is known."""
    return used.cpus.mean if used.cpus.peak is None else used.cpus.peak


def _format_cpus(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def total_attempt_usage(used: Sequence[AttemptUsage]) -> AttemptUsage | None:
    """Over all attempts: the sum of times, the maximum of memory; None: no data."""
    if not used:
        return None
    return AttemptUsage(
        sum(attempt.elapsed_seconds for attempt in used),
        _sum(attempt.cpu_seconds for attempt in used),
        max((attempt.memory_mib for attempt in used if attempt.memory_mib is not None), default=None),
        _sum(attempt.gpu_seconds for attempt in used),
        any(attempt.out_of_memory for attempt in used),
    )


def merge_accounting_usage(sampled: UsageSummary, accounting_usage: AttemptUsage | None) -> UsageSummary:
    """Samples can miss a peak of memory; the accounting does not, but it has no peak of cpus."""
    if accounting_usage is None or accounting_usage.elapsed_seconds <= 0:
        return sampled
    cpus, memory = sampled.cpus, sampled.memory_mib
    if accounting_usage.cpu_seconds is not None:
        cpus = SeriesStatistics(
            round(accounting_usage.cpu_seconds / accounting_usage.elapsed_seconds, 3), cpus.peak, cpus.last
        )
    if accounting_usage.memory_mib is not None:
        memory = SeriesStatistics(memory.mean, max(accounting_usage.memory_mib, memory.peak or 0.0), memory.last)
    seconds = max(sampled.sampled_seconds, accounting_usage.elapsed_seconds)
    return replace(sampled, sampled_seconds=seconds, cpus=cpus, memory_mib=memory)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
