"""Usage samples of attempts, nodes and the cluster, and time series of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from heliostat.models.jobs import AttemptId, JobId

USAGE_COLUMNS = (("cpu", "cores"), ("memory", "MiB"))
"""Columns of a job or a node: name and unit. The columns of each device follow."""
DEVICE_COLUMNS = (("utilisation", "%"), ("memory", "MiB"))
CLUSTER_COLUMNS = (
    ("gpus", "GPUs"),  # of the nodes that are not down
    ("gpus_allocated", "GPUs"),  # to jobs
    ("gpu_utilisation", "%"),  # the mean of all
    ("cpus", "cores"),
    ("cpus_allocated", "cores"),
    ("cpus_used", "cores"),  # by any process
    ("memory", "MiB"),
    ("memory_held", "MiB"),
    ("memory_used", "MiB"),
    ("pending", "jobs"),
    ("running", "jobs"),
)
CLUSTER_SUBJECT = "cluster"
JOB_PREFIX, JOB_POWER_PREFIX = "job/", "job-power/"
MEASURED_POWER_COLUMN = 1  # of the power of a job, after its watts: 1 if it comes from counters of energy


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """Current usage of one device; None: unknown."""

    utilisation: float | None = None  # percent
    memory_mib: float | None = None
    power_watts: float | None = None
    is_power_measured: bool = False  # by a counter of energy; otherwise it is the power at one moment


@dataclass(frozen=True, slots=True)
class UsageSample:
    """Current usage of an attempt or of a whole node; None: unknown."""

    cpus: float | None = None  # busy cores since the previous sample
    memory_mib: float | None = None  # without files in the page cache
    devices: tuple[DeviceSample, ...] = ()  # of an attempt in the order of its devices, of a node by index

    @property
    def power_watts(self) -> float | None:
        """Of its devices whose power is known."""
        known = [device.power_watts for device in self.devices if device.power_watts is not None]
        return sum(known) if known else None

    @property
    def is_power_measured(self) -> bool:
        return all(device.is_power_measured for device in self.devices if device.power_watts is not None)


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """All samples that an engine takes at once."""

    attempts: Mapping[AttemptId, UsageSample] = field(default_factory=dict)
    nodes: Mapping[str, UsageSample] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttemptUsage:
    """Total usage of an ended attempt, as reported by its engine; None: unknown."""

    elapsed_seconds: float
    cpu_seconds: float | None = None
    memory_mib: float | None = None  # peak
    gpu_seconds: float | None = None  # allocated
    out_of_memory: bool = False  # it, or one of its processes, was killed for that


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """One value over time, in steps of equal length; None: unknown."""

    name: str  # cpu, memory, gpu0_utilisation, gpu0_memory…
    unit: str  # cores, MiB, %, GPUs, jobs
    start_at: datetime
    step_seconds: int
    mean: tuple[float | None, ...]
    max: tuple[float | None, ...]
    last: float | None = None  # the newest value


@dataclass(frozen=True, slots=True)
class SeriesStatistics:
    """Mean, peak and last value of a series; None: unknown."""

    mean: float | None = None
    peak: float | None = None
    last: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceStatistics:
    utilisation: SeriesStatistics = SeriesStatistics()  # percent
    memory_mib: SeriesStatistics = SeriesStatistics()


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """Usage of a job over all its attempts."""

    sampled_seconds: float = 0.0
    cpus: SeriesStatistics = SeriesStatistics()
    memory_mib: SeriesStatistics = SeriesStatistics()
    devices: tuple[DeviceStatistics, ...] = ()


def job_subject(job_id: JobId) -> str:
    """The name under which the samples of all its attempts are stored."""
    return f"{JOB_PREFIX}{job_id}"


def job_power_subject(job_id: JobId) -> str:
    """The name under which the power of its GPUs is stored, apart from other samples: reports read only this."""
    return f"{JOB_POWER_PREFIX}{job_id}"


def node_subject(name: str) -> str:
    return f"node/{name}"


def usage_columns(count: int) -> tuple[tuple[str, str], ...]:
    """The first `count` columns of a job or a node."""
    names = list(USAGE_COLUMNS)
    for device in range(max(0, count - len(names)) // len(DEVICE_COLUMNS)):
        names += [(f"gpu{device}_{name}", unit) for name, unit in DEVICE_COLUMNS]
    return tuple(names[:count])


def sample_values(sample: UsageSample) -> Sequence[float | None]:
    """The values in the order of `usage_columns`."""
    devices = [value for device in sample.devices for value in (device.utilisation, device.memory_mib)]
    return [sample.cpus, sample.memory_mib, *devices]
