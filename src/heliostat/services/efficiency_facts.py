"""Facts about the usage of a job, and the amounts that would have been enough. Pure."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from heliostat.models import Job, JobState, PlacementRequest, Resources, UsageSummary
from heliostat.models.amounts import format_count, format_percent, format_size

IDLE_PERCENT = 5.0  # a GPU with less utilisation counts as unused
_MEMORY_HEADROOM, _CPU_HEADROOM, _TIME_HEADROOM, _GPU_HEADROOM = 1.3, 1.2, 1.5, 1.3
_STARTED_MIB = 1024.0  # GPU memory of a program that has not stored anything there
_GPU_FRACTIONS = (0.25, 0.5)
# Below the first amount, amounts are multiples of the second.
_MEMORY_STEPS_MIB = ((2**10, 256), (2**14, 2**10), (2**15, 2**11), (2**17, 2**12), (2**19, 2**14))
_LARGEST_MEMORY_STEP_MIB = 2**16
_TIME_STEPS_SECONDS = ((3600, 900), (12 * 3600, 3600), (2 * 86400, 6 * 3600))
_LARGEST_TIME_STEP_SECONDS = 86400
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The largest amounts that one task of a job could request."""

    cpus: int
    memory_mib: int
    time_limit_seconds: int
    splits_gpus: bool = False  # a job can request a fraction of a GPU


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What a job requested, and what all its attempts together used."""

    requested: Resources  # per task
    used: UsageSummary  # of all tasks
    run_seconds: float
    limits: RequestLimits
    state: JobState = JobState.COMPLETED
    kind: str = "batch"
    placement: PlacementRequest = field(default_factory=PlacementRequest)
    time_limit_seconds: int | None = None
    attempts: int = 1
    out_of_memory: bool = False  # it was killed for that
    gpu_memory_mib: tuple[int | None, ...] = ()  # of each GPU; None: unknown
    jobs: int = 1  # the usage is the maximum of so many jobs

    @classmethod
    def of_job(cls, job: Job, used: UsageSummary, run_seconds: float, limits: RequestLimits) -> "JobFacts":
        """Without what only its attempts know."""
        return cls(
            requested=job.resources,
            used=used,
            run_seconds=run_seconds,
            limits=limits,
            state=job.state,
            kind=job.kind,
            placement=job.placement,
            time_limit_seconds=job.time_limit_seconds,
            attempts=job.attempt,
        )

    @property
    def is_representative(self) -> bool:
        """Whether the next run would use the same amounts: a job that failed or was cancelled may have ended
        before its peak, the largest of several tasks is unknown, and an exclusive job has its nodes anyway."""
        is_whole = self.state in (JobState.COMPLETED, JobState.TIMED_OUT)
        return is_whole and self.placement.tasks == 1 and not self.placement.exclusive

    @property
    def cpus(self) -> int:
        return self.requested.cpus * self.placement.tasks

    @property
    def memory_mib(self) -> int:
        return self.requested.memory_mib * self.placement.tasks

    @property
    def cpus_used(self) -> float | None:
        """The peak; the mean if no peak is known."""
        return self.used.cpus.mean if self.used.cpus.peak is None else self.used.cpus.peak

    @property
    def memory_used(self) -> float | None:
        """The peak, in MiB."""
        return self.used.memory_mib.peak

    @property
    def gpu_count(self) -> int:
        return len(self.used.devices)

    @property
    def gpus_used(self) -> int | None:
        """None: no GPUs, or no data about them."""
        means = [device.utilisation.mean for device in self.used.devices]
        known = [mean for mean in means if mean is not None]
        return sum(mean >= IDLE_PERCENT for mean in known) if known else None

    @property
    def gpu_percent(self) -> float | None:
        """Mean utilisation of all its GPUs."""
        known = [device.utilisation.mean for device in self.used.devices if device.utilisation.mean is not None]
        return sum(known) / len(known) if known else None

    @property
    def gpu_memory_fraction(self) -> float | None:
        """The largest part of the memory of a GPU that was in use; None: unknown for a GPU."""
        sizes, devices = self.gpu_memory_mib, self.used.devices
        if not devices or len(sizes) < len(devices):
            return None
        parts = [
            device.memory_mib.peak / size if size and device.memory_mib.peak is not None else None
            for device, size in zip(devices, sizes, strict=False)
        ]
        known = [part for part in parts if part is not None]
        return max(known) if len(known) == len(parts) else None

    @property
    def texts(self) -> dict[str, str]:
        """The values in the sentences of the rules."""
        single = self.gpu_count == 1
        return {
            "at_most": "at most " if self.jobs > 1 else "",
            "cpus": format_count(self.cpus, "CPU"),
            "cpus_used": _optional(self.cpus_used, _format_cpus),
            "cpu_load": _optional(self.used.cpus.mean, lambda mean: format_percent(mean / self.cpus)),
            "memory": format_size(self.memory_mib),
            "memory_used": _optional(self.memory_used, format_size),
            "gpus": format_count(self.gpu_count, "GPU"),
            "gpus_used": _optional(self.gpus_used, str),
            "gpus_were": "its GPU was" if single else f"its {self.gpu_count} GPUs were",
            "its_gpus": "its GPU" if single else f"its {self.gpu_count} GPUs",
            "gpu_load": _optional(self.gpu_percent, lambda percent: format_percent(percent / 100)),
            "gpu_memory": _optional(self.gpu_memory_fraction, format_percent),
            "run_time": format_seconds(self.run_seconds),
            "time_limit": _optional(self.time_limit_seconds, format_seconds),
        }


def enough_gpus(facts: JobFacts) -> float | None:
    """The GPUs that did anything at any time, or held more than a program that only starts on them; None: not
    fewer than requested."""
    peaks = [(device.utilisation.peak, device.memory_mib.peak or 0.0) for device in facts.used.devices]
    if len(peaks) != facts.requested.gpus:
        return None
    needed = 0
    for percent, memory_mib in peaks:
        if percent is None:
            return None
        needed += percent >= IDLE_PERCENT or memory_mib > _STARTED_MIB
    return _less(needed, facts.requested.gpus)


def enough_gpu_fraction(facts: JobFacts) -> float | None:
    """A fraction of its only GPU; None: the nodes do not split GPUs, or it needs more than half of one."""
    load, memory = facts.gpu_percent, facts.gpu_memory_fraction
    if facts.requested.gpus != 1 or not facts.limits.splits_gpus or load is None or memory is None:
        return None
    needed = max(load / 100, memory) * _GPU_HEADROOM
    return next((fraction for fraction in _GPU_FRACTIONS if fraction >= needed), None)


def enough_cpus(facts: JobFacts) -> int | None:
    """None without a known peak: a mean hides the moments in which all CPUs were busy."""
    peak = facts.used.cpus.peak
    return None if peak is None else _less(max(1, math.ceil(peak * _CPU_HEADROOM)), facts.requested.cpus)


def enough_memory(facts: JobFacts) -> str | None:
    peak = facts.memory_used
    if peak is None:
        return None
    return _optional_memory(_less(round_up_memory(peak * _MEMORY_HEADROOM), facts.requested.memory_mib))


def enough_time(facts: JobFacts) -> str | None:
    if facts.time_limit_seconds is None:
        return None
    seconds = _less(round_up_time(facts.run_seconds * _TIME_HEADROOM), facts.time_limit_seconds)
    return None if seconds is None else format_seconds(seconds)


def more_cpus(facts: JobFacts) -> int | None:
    return _more(2 * facts.requested.cpus, facts.requested.cpus, facts.limits.cpus)


def more_memory(facts: JobFacts) -> str | None:
    used = (facts.memory_used or 0.0) / facts.placement.tasks
    wanted = round_up_memory(max(used, facts.requested.memory_mib) * _MEMORY_HEADROOM)
    return _optional_memory(_more(wanted, facts.requested.memory_mib, facts.limits.memory_mib))


def more_time(facts: JobFacts) -> str | None:
    if facts.time_limit_seconds is None:
        return None
    minutes = facts.limits.time_limit_seconds // 60
    seconds = _more(round_up_time(2 * facts.time_limit_seconds), facts.time_limit_seconds, minutes * 60)
    return None if seconds is None else format_seconds(seconds)


def round_up_memory(mib: float) -> int:
    """To an amount that people write."""
    step = next((step for below, step in _MEMORY_STEPS_MIB if mib < below), _LARGEST_MEMORY_STEP_MIB)
    return max(1, math.ceil(mib / step)) * step


def round_up_time(seconds: float) -> int:
    """To a time limit that people write."""
    step = next((step for below, step in _TIME_STEPS_SECONDS if seconds < below), _LARGEST_TIME_STEP_SECONDS)
    return max(1, math.ceil(seconds / step)) * step


def format_seconds(seconds: float) -> str:
    """`45m`, `4h`, `1d12h`, also a valid time limit; at least a minute."""
    hours, minutes = divmod(max(1, int(seconds) // 60), 60)
    days, hours = divmod(hours, 24)
    parts = [f"{count}{unit}" for count, unit in ((days, "d"), (hours, "h"), (minutes, "m")) if count]
    return "".join(parts)


def _optional_memory(mib: int | None) -> str | None:
    """`12G` or `512M`."""
    if mib is None:
        return None
    return f"{mib // 2**10}G" if mib % 2**10 == 0 else f"{mib}M"


def _less(amount: int, requested: float) -> int | None:
    return amount if amount < requested else None


def _more(wanted: int, requested: int, maximum: int) -> int | None:
    amount = min(wanted, maximum)
    return amount if amount > requested else None


def _format_cpus(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _optional(value: T | None, write: Callable[[T], str]) -> str:
    return "unknown" if value is None else write(value)
