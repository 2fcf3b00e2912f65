"""What attempts and nodes use: read every few seconds, kept as rows of values, shown as series."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from heliostat.models.jobs import AttemptId, JobId

USAGE_COLUMNS = (("cpu", "cores"), ("memory", "MiB"))
"""Of a job or a node: name and unit; behind them those of each device."""
DEVICE_COLUMNS = (("utilisation", "%"), ("memory", "MiB"))
CLUSTER_COLUMNS = (
    ("gpus", "GPUs"),  # of the nodes that are not down
    ("gpus_allocated", "GPUs"),  # given to jobs
    ("gpu_utilisation", "%"),  # the mean of all
    ("cpus", "cores"),
    ("cpus_allocated", "cores"),
    ("cpus_used", "cores"),  # kept busy, by whomever
    ("memory", "MiB"),
    ("memory_held", "MiB"),
    ("memory_used", "MiB"),
    ("pending", "jobs"),
    ("running", "jobs"),
)
CLUSTER_SUBJECT = "cluster"


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """What one device does now; None is not known."""

    utilisation: float | None = None  # percent
    memory_mib: float | None = None


@dataclass(frozen=True, slots=True)
class UsageSample:
    """What an attempt, or a whole node, uses now; None is not known."""

    cpus: float | None = None  # cores kept busy since the reading before
    memory_mib: float | None = None  # without files in the page cache
    devices: tuple[DeviceSample, ...] = ()  # of an attempt in the order it was given them, of a node by index


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """All that an engine reads in one go."""

    attempts: Mapping[AttemptId, UsageSample] = field(default_factory=dict)
    nodes: Mapping[str, UsageSample] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttemptUsage:
    """What an attempt has used in all, as its engine counts it once it is over; None is not known."""

    elapsed_seconds: float
    cpu_seconds: float | None = None
    memory_mib: float | None = None  # the most at a time
    gpu_seconds: float | None = None  # in which it held them
    out_of_memory: bool = False  # it, or a part of it, was ended for that


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """One value over time, in steps of equal length; None where nothing is known."""

    name: str  # cpu, memory, gpu0_utilisation, gpu0_memory…
    unit: str  # cores, MiB, %, GPUs, jobs
    start_at: datetime
    step_seconds: int
    mean: tuple[float | None, ...]
    max: tuple[float | None, ...]
    last: float | None = None  # the newest value itself


@dataclass(frozen=True, slots=True)
class SeriesStatistics:
    """A series in three numbers; None is not known."""

    mean: float | None = None
    peak: float | None = None
    last: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceStatistics:
    utilisation: SeriesStatistics = SeriesStatistics()  # percent
    memory_mib: SeriesStatistics = SeriesStatistics()


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """What a job has used, over all its attempts."""

    sampled_seconds: float = 0.0  # for how long it was watched
    cpus: SeriesStatistics = SeriesStatistics()
    memory_mib: SeriesStatistics = SeriesStatistics()
    devices: tuple[DeviceStatistics, ...] = ()


def job_subject(job_id: JobId) -> str:
    """Under which name its rows are kept, whichever attempt they are of."""
    return f"job/{job_id}"


def node_subject(name: str) -> str:
    return f"node/{name}"


def usage_columns(count: int) -> tuple[tuple[str, str], ...]:
    """The first so many columns of a job or a node."""
    names = list(USAGE_COLUMNS)
    for device in range(max(0, count - len(names)) // len(DEVICE_COLUMNS)):
        names += [(f"gpu{device}_{name}", unit) for name, unit in DEVICE_COLUMNS]
    return tuple(names[:count])


def sample_values(reading: UsageSample) -> Sequence[float | None]:
    """A reading in the order of `usage_columns`."""
    devices = [value for device in reading.devices for value in (device.utilisation, device.memory_mib)]
    return [reading.cpus, reading.memory_mib, *devices]
