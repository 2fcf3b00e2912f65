"""What the jobs of the made-up month used, in steps of five minutes: for plots that do not begin today. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from heliostat.engines.simulated.behaviour import UsageProfile, usage_profile_of
from heliostat.engines.simulated.cluster import IDLE_MEMORY_MIB
from heliostat.models import Node, Resources
from heliostat.models.samples import CLUSTER_COLUMNS, CLUSTER_SUBJECT, job_subject, node_subject
from heliostat.store.sample_chunks import SampleChunk, SampleMatrix
from heliostat.store.samples import FIVE_MINUTE_STEP

_SYSTEM = (0.15, 1800.0)  # cpus and MiB that a machine needs for itself
_WARM_UP_SECONDS = 90.0
_AT = {name: at for at, (name, _) in enumerate(CLUSTER_COLUMNS)}


@dataclass(frozen=True, slots=True)
class JobRun:
    """What is needed to know of a job."""

    job_id: int
    submitted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None  # None: it is not over
    resources: Resources
    node: str | None
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepRange:
    """The time to fill, as steps since 1970."""

    first_step: int
    end_step: int

    @classmethod
    def between(cls, start: datetime, end: datetime) -> "StepRange":
        return cls(int(start.timestamp()) // FIVE_MINUTE_STEP, int(end.timestamp()) // FIVE_MINUTE_STEP)

    def overlap(self, since: datetime, until: datetime | None) -> tuple[slice, SampleMatrix]:
        """Those that touch this time, and which part of each it is."""
        begin = since.timestamp() / FIVE_MINUTE_STEP
        end = self.end_step if until is None else until.timestamp() / FIVE_MINUTE_STEP
        first, last = max(self.first_step, int(begin)), min(self.end_step, int(np.ceil(end)))
        at = np.arange(first, max(first, last))
        part = np.clip(np.minimum(at + 1, end) - np.maximum(at, begin), 0, 1)
        return slice(first - self.first_step, max(first, last) - self.first_step), part


def generate_usage_samples(
    jobs: Iterable[JobRun], nodes: Sequence[Node], month: StepRange
) -> Iterator[tuple[str, SampleChunk]]:
    """Of each job that ran, of each node, and of all together: under which name, and what."""
    count = month.end_step - month.first_step
    machines = {node.name: _idle(node, count) for node in nodes}
    columns = {device.uuid: 2 + 2 * rank for node in nodes for rank, device in enumerate(node.devices)}
    sizes = {device.uuid: device.memory_mib for node in nodes for device in node.devices}
    total = np.zeros((count, len(CLUSTER_COLUMNS)))
    for job in jobs:
        where, part = month.overlap(job.submitted_at, job.started_at or job.ended_at)
        total[where, _AT["pending"]] += part
        if job.started_at is None or job.node is None:
            continue
        where, part = month.overlap(job.started_at, job.ended_at)
        if not len(part):
            continue
        used = _used(job, [sizes[uuid] for uuid in job.devices], month.first_step + where.start, len(part))
        machine = machines[job.node]
        for column, values in zip((0, 1, *_pairs(columns[uuid] for uuid in job.devices)), used.T, strict=True):
            machine[where, column] += values * part
        total[where] += part[:, None] * _held(job)
        yield (
            job_subject(job.job_id),
            SampleChunk((month.first_step + where.start) * FIVE_MINUTE_STEP, FIVE_MINUTE_STEP, used, used),
        )
    for node in nodes:
        values = machines[node.name] = _bounded(machines[node.name], node)
        yield (
            node_subject(node.name),
            SampleChunk(month.first_step * FIVE_MINUTE_STEP, FIVE_MINUTE_STEP, values, values),
        )
    yield CLUSTER_SUBJECT, _all_together(total, machines, nodes, month)


def _idle(node: Node, count: int) -> SampleMatrix:
    row = [*_SYSTEM, *(value for _ in node.devices for value in (0.0, float(IDLE_MEMORY_MIB)))]
    return np.tile(np.array(row), (count, 1))


def _used(job: JobRun, sizes: Sequence[int], first: int, count: int) -> SampleMatrix:
    """Its cpus and memory, then load and memory of each of its devices."""
    assert job.started_at is not None  # noqa: S101 - said by the caller
    habits, wanted = usage_profile_of(job.job_id), job.resources
    seconds = np.maximum((first + np.arange(count) + 0.5) * FIVE_MINUTE_STEP - job.started_at.timestamp(), 1.0)
    warmth = np.minimum(1.0, seconds / _WARM_UP_SECONDS)
    wave = 1 + 0.08 * np.sin(2 * np.pi * seconds / (20 * habits.period_seconds))
    columns = [
        wanted.cpus * habits.cpu_utilisation * wave * warmth,
        wanted.memory_mib * habits.memory_utilisation * (0.2 + 0.8 * warmth),
    ]
    for rank, mib in enumerate(sizes):
        columns += _of_device(habits, rank, mib, wave * warmth)
    return np.stack(columns, axis=1)


def _of_device(habits: UsageProfile, rank: int, mib: int, wave: SampleMatrix) -> tuple[SampleMatrix, SampleMatrix]:
    is_used = rank == 0 or not habits.uses_one_gpu
    fill = 0.3 + 0.6 * habits.memory_utilisation if is_used else 0.01
    return np.minimum(100.0, habits.gpu_percent * is_used * wave), mib * fill * np.minimum(1.0, 0.3 + wave)


def _pairs(columns: Iterable[int]) -> Iterator[int]:
    for column in columns:
        yield from (column, column + 1)


def _held(job: JobRun) -> SampleMatrix:
    row, wanted = np.zeros(len(CLUSTER_COLUMNS)), job.resources
    row[_AT["gpus_allocated"]], row[_AT["cpus_allocated"]] = wanted.gpus, wanted.cpus
    row[_AT["memory_held"]], row[_AT["running"]] = wanted.memory_mib, 1
    return row


def _bounded(values: SampleMatrix, node: Node) -> SampleMatrix:
    most = [node.cpus, node.memory_mib, *(v for device in node.devices for v in (100, device.memory_mib))]
    bounded: SampleMatrix = np.minimum(values, np.array(most, dtype=float))
    return bounded


def _all_together(
    total: SampleMatrix, machines: dict[str, SampleMatrix], nodes: Sequence[Node], month: StepRange
) -> SampleChunk:
    total[:, _AT["gpus"]] = sum(len(node.devices) for node in nodes)
    total[:, _AT["cpus"]] = sum(node.cpus for node in nodes)
    total[:, _AT["memory"]] = sum(node.memory_mib for node in nodes)
    total[:, _AT["cpus_used"]] = sum(values[:, 0] for values in machines.values())
    total[:, _AT["memory_used"]] = sum(values[:, 1] for values in machines.values())
    loads = sum(values[:, 2::2].sum(axis=1) for values in machines.values())
    total[:, _AT["gpu_utilisation"]] = loads / max(1.0, total[0, _AT["gpus"]])
    return SampleChunk(month.first_step * FIVE_MINUTE_STEP, FIVE_MINUTE_STEP, total, total)
