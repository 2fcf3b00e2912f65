"""Synthetic usage samples of the past month, in steps of five minutes, so that plots have a history. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from heliostat.engines.simulated.behaviour import UsageProfile, usage_profile_of
from heliostat.engines.simulated.cluster import IDLE_MEMORY_MIB, IDLE_WATTS, WATTS_PER_PERCENT
from heliostat.models import Node, Resources
from heliostat.models.samples import CLUSTER_COLUMNS, CLUSTER_SUBJECT, job_power_subject, job_subject, node_subject
from heliostat.store.sample_chunks import SampleChunk, SampleMatrix
from heliostat.store.samples import FIVE_MINUTE_STEP

_SYSTEM = (0.15, 1800.0)  # cpus and MiB used by the operating system of a node
_WARM_UP_SECONDS = 90.0
_COLUMN = {name: index for index, (name, _) in enumerate(CLUSTER_COLUMNS)}


@dataclass(frozen=True, slots=True)
class JobRun:
    """The facts about a job that its usage is computed from."""

    job_id: int
    submitted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None  # None: not finished
    resources: Resources
    node: str | None
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepRange:
    """The period to fill, in steps since 1970."""

    first_step: int
    end_step: int

    @classmethod
    def between(cls, start: datetime, end: datetime) -> "StepRange":
        return cls(int(start.timestamp()) // FIVE_MINUTE_STEP, int(end.timestamp()) // FIVE_MINUTE_STEP)

    def overlap(self, since: datetime, until: datetime | None) -> tuple[slice, SampleMatrix]:
        """The steps that overlap this time, and the fraction of each that it covers."""
        begin = since.timestamp() / FIVE_MINUTE_STEP
        end = self.end_step if until is None else until.timestamp() / FIVE_MINUTE_STEP
        first, last = max(self.first_step, int(begin)), min(self.end_step, int(np.ceil(end)))
        steps = np.arange(first, max(first, last))
        fraction = np.clip(np.minimum(steps + 1, end) - np.maximum(steps, begin), 0, 1)
        return slice(first - self.first_step, max(first, last) - self.first_step), fraction


def generate_usage_samples(
    jobs: Iterable[JobRun], nodes: Sequence[Node], month: StepRange
) -> Iterator[tuple[str, SampleChunk]]:
    """Subject and samples of each job that ran, of each node, and of the whole cluster."""
    count = month.end_step - month.first_step
    node_samples = {node.name: _idle(node, count) for node in nodes}
    columns = {device.uuid: 2 + 2 * rank for node in nodes for rank, device in enumerate(node.devices)}
    sizes = {device.uuid: device.memory_mib for node in nodes for device in node.devices}
    total = np.zeros((count, len(CLUSTER_COLUMNS)))
    for job in jobs:
        steps, fraction = month.overlap(job.submitted_at, job.started_at or job.ended_at)
        total[steps, _COLUMN["pending"]] += fraction
        if job.started_at is None or job.node is None:
            continue
        steps, fraction = month.overlap(job.started_at, job.ended_at)
        if not len(fraction):
            continue
        first = month.first_step + steps.start
        used = _job_usage(job, [sizes[uuid] for uuid in job.devices], first, len(fraction))
        samples = node_samples[job.node]
        for column, values in zip((0, 1, *_pairs(columns[uuid] for uuid in job.devices)), used.T, strict=True):
            samples[steps, column] += values * fraction
        total[steps] += fraction[:, None] * _allocated(job)
        yield job_subject(job.job_id), SampleChunk(first * FIVE_MINUTE_STEP, FIVE_MINUTE_STEP, used, used)
        if job.devices:
            watts = IDLE_WATTS * len(job.devices) + WATTS_PER_PERCENT * used[:, 2::2].sum(axis=1, keepdims=True)
            power = SampleChunk(first * FIVE_MINUTE_STEP, FIVE_MINUTE_STEP, watts, watts)
            yield job_power_subject(job.job_id), power
    for node in nodes:
        values = node_samples[node.name] = _bounded(node_samples[node.name], node)
        yield (
            node_subject(node.name),
            SampleChunk(month.first_step * FIVE_MINUTE_STEP, FIVE_MINUTE_STEP, values, values),
        )
    yield CLUSTER_SUBJECT, _cluster_samples(total, node_samples, nodes, month)


def _idle(node: Node, count: int) -> SampleMatrix:
    row = [*_SYSTEM, *(value for _ in node.devices for value in (0.0, float(IDLE_MEMORY_MIB)))]
    return np.tile(np.array(row), (count, 1))


def _job_usage(job: JobRun, sizes: Sequence[int], first: int, count: int) -> SampleMatrix:
    """Columns: cpus and memory, then load and memory of each device."""
    assert job.started_at is not None  # noqa: S101 - checked by the caller
    profile, requested = usage_profile_of(job.job_id), job.resources
    seconds = np.maximum((first + np.arange(count) + 0.5) * FIVE_MINUTE_STEP - job.started_at.timestamp(), 1.0)
    warm_up = np.minimum(1.0, seconds / _WARM_UP_SECONDS)
    wave = 1 + 0.08 * np.sin(2 * np.pi * seconds / (20 * profile.period_seconds))
    columns = [
        requested.cpus * profile.cpu_utilisation * wave * warm_up,
        requested.memory_mib * profile.memory_utilisation * (0.2 + 0.8 * warm_up),
    ]
    for rank, mib in enumerate(sizes):
        columns += _device_usage(profile, rank, mib, wave * warm_up)
    return np.stack(columns, axis=1)


def _device_usage(
    profile: UsageProfile, rank: int, mib: int, wave: SampleMatrix
) -> tuple[SampleMatrix, SampleMatrix]:
    is_used = rank == 0 or not profile.uses_one_gpu
    fill = 0.3 + 0.6 * profile.memory_utilisation if is_used else 0.01
    return np.minimum(100.0, profile.gpu_percent * is_used * wave), mib * fill * np.minimum(1.0, 0.3 + wave)


def _pairs(columns: Iterable[int]) -> Iterator[int]:
    for column in columns:
        yield from (column, column + 1)


def _allocated(job: JobRun) -> SampleMatrix:
    row, requested = np.zeros(len(CLUSTER_COLUMNS)), job.resources
    row[_COLUMN["gpus_allocated"]], row[_COLUMN["cpus_allocated"]] = requested.gpus, requested.cpus
    row[_COLUMN["memory_held"]], row[_COLUMN["running"]] = requested.memory_mib, 1
    return row


def _bounded(values: SampleMatrix, node: Node) -> SampleMatrix:
    maxima = [node.cpus, node.memory_mib, *(v for device in node.devices for v in (100, device.memory_mib))]
    bounded: SampleMatrix = np.minimum(values, np.array(maxima, dtype=float))
    return bounded


def _cluster_samples(
    total: SampleMatrix, node_samples: dict[str, SampleMatrix], nodes: Sequence[Node], month: StepRange
) -> SampleChunk:
    total[:, _COLUMN["gpus"]] = sum(len(node.devices) for node in nodes)
    total[:, _COLUMN["cpus"]] = sum(node.cpus for node in nodes)
    total[:, _COLUMN["memory"]] = sum(node.memory_mib for node in nodes)
    total[:, _COLUMN["cpus_used"]] = sum(values[:, 0] for values in node_samples.values())
    total[:, _COLUMN["memory_used"]] = sum(values[:, 1] for values in node_samples.values())
    loads = sum(values[:, 2::2].sum(axis=1) for values in node_samples.values())
    total[:, _COLUMN["gpu_utilisation"]] = loads / max(1.0, total[0, _COLUMN["gpus"]])
    return SampleChunk(month.first_step * FIVE_MINUTE_STEP, FIVE_MINUTE_STEP, total, total)
