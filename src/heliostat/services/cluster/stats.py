"""Usage statistics of jobs, nodes and the cluster over time."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from heliostat.models import (
    AttemptRecord,
    AttemptUsage,
    Caller,
    DeviceStatistics,
    JobId,
    SeriesStatistics,
    TimeSeries,
    UsageSummary,
)
from heliostat.models.samples import CLUSTER_COLUMNS, CLUSTER_SUBJECT, job_subject, node_subject, usage_columns
from heliostat.services.cluster.nodes import get_node
from heliostat.services.context import Context
from heliostat.services.efficiency import (
    EfficiencyReport,
    RequestedResources,
    assess_efficiency,
    merge_accounting_usage,
    total_attempt_usage,
)
from heliostat.services.permissions import require_inspectable_job
from heliostat.store import jobs as stored
from heliostat.store.sample_chunks import SampleChunk, SampleMatrix, TimeGrid, resample_chunks
from heliostat.store.timestamps import to_datetime
from heliostat.store.usage import list_attempt_usage

__all__ = [
    "ClusterStats",
    "EfficiencyReport",
    "JobStats",
    "NodeStats",
    "RequestedResources",
    "StatsPeriod",
    "TimeSeries",
    "assess_efficiency",
    "cluster_stats",
    "job_stats",
    "node_stats",
]

MAX_POINTS = 300
_STEPS = (
    *(1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800),
    *(hours * 3600 for hours in (1, 2, 3, 6, 12, 24, 48, 96, 168)),
)


class StatsPeriod(StrEnum):
    """The period that statistics cover, until now."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"

    @property
    def seconds(self) -> int:
        return {"day": 1, "week": 7, "month": 30, "year": 365}[self.value] * 86400


@dataclass(frozen=True, slots=True)
class JobStats:
    """Over all attempts since the first start."""

    job_id: JobId
    requested: RequestedResources
    series: tuple[TimeSeries, ...]  # cpu, memory, gpu0_utilisation, gpu0_memory, gpu1_…
    summary: UsageSummary
    efficiency: EfficiencyReport
    device_memory_mib: tuple[int | None, ...] = ()  # memory of each GPU, in the order of the series
    accounting_usage: AttemptUsage | None = (
        None  # from the engine's accounting, if it has one: over all ended attempts
    )


@dataclass(frozen=True, slots=True)
class NodeStats:
    name: str
    span: StatsPeriod
    series: tuple[TimeSeries, ...]  # the same columns as for a job


@dataclass(frozen=True, slots=True)
class ClusterStats:
    span: StatsPeriod
    series: tuple[TimeSeries, ...]  # those of models.samples.CLUSTER_COLUMNS


def job_stats(context: Context, caller: Caller, job_id: JobId) -> JobStats:
    """For users who may read the job's log."""
    job = require_inspectable_job(context, caller, job_id)
    with context.store.read() as conn:
        attempts = [attempt for attempt in stored.list_attempts(conn, job_id) if attempt.started_at is not None]
        accounting_usage = total_attempt_usage(list_attempt_usage(conn, job_id))
    now = context.now()
    start = min((attempt.started_at for attempt in attempts if attempt.started_at), default=now)
    end = now if any(attempt.ended_at is None for attempt in attempts) else job.ended_at or now
    chunks = _read(context, job_subject(job_id), start.timestamp(), end.timestamp())
    run_seconds = sum(_seconds(attempt, now) for attempt in attempts)
    summary = merge_accounting_usage(_summary(chunks, run_seconds), accounting_usage)
    requested = RequestedResources.from_job(job)
    series = _series(chunks, start.timestamp(), end.timestamp(), None)
    devices = attempts[-1].devices if attempts else ()
    efficiency = assess_efficiency(requested, summary, run_seconds)
    return JobStats(job_id, requested, series, summary, efficiency, _memory_of(context, devices), accounting_usage)


def node_stats(context: Context, caller: Caller, name: str, span: StatsPeriod = StatsPeriod.DAY) -> NodeStats:
    """For all users, as the list of nodes is."""
    get_node(context, name)
    return NodeStats(name, span, _of_span(context, node_subject(name), span, None))


def cluster_stats(context: Context, caller: Caller, span: StatsPeriod = StatsPeriod.DAY) -> ClusterStats:
    """For all users."""
    return ClusterStats(span, _of_span(context, CLUSTER_SUBJECT, span, CLUSTER_COLUMNS))


SeriesColumns = Sequence[tuple[str, str]]


def _of_span(
    context: Context, subject: str, span: StatsPeriod, columns: SeriesColumns | None
) -> tuple[TimeSeries, ...]:
    end = context.now().timestamp()
    start = end - span.seconds
    return _series(_read(context, subject, start, end), start, end, columns)


def _read(context: Context, subject: str, start: float, end: float) -> list[SampleChunk]:
    """Chunks of this period, extended by one step at both ends."""
    return context.samples.read(subject, start - context.samples.step_seconds, end + context.samples.step_seconds)


def _memory_of(context: Context, uuids: Sequence[str]) -> tuple[int | None, ...]:
    sizes = {device.uuid: device.memory_mib for node in context.node_inventory.nodes() for device in node.devices}
    return tuple(sizes.get(uuid) for uuid in uuids)


def _seconds(attempt: AttemptRecord, now: datetime) -> float:
    if attempt.started_at is None:
        return 0.0
    return max(0.0, ((attempt.ended_at or now) - attempt.started_at).total_seconds())


def _series(
    chunks: Sequence[SampleChunk], start: float, end: float, columns: SeriesColumns | None
) -> tuple[TimeSeries, ...]:
    """At most MAX_POINTS of each series, at a round step; None where there is no sample."""
    if not chunks:
        return ()
    coarsest = max(chunk.step for chunk in chunks)
    grid = _grid(start, end, coarsest)
    resampled = resample_chunks(chunks, grid)
    names = columns or usage_columns(resampled.mean.shape[1])
    start_at, newest = to_datetime(float(grid.first)), _last_row(chunks)
    return tuple(
        TimeSeries(
            name, unit, start_at, grid.step, _known(resampled.mean, at), _known(resampled.max, at), newest[at]
        )
        for at, (name, unit) in enumerate(names)
        if at < resampled.mean.shape[1]
    )


def _last_row(chunks: Sequence[SampleChunk]) -> list[float | None]:
    """The newest values, for as many columns as any chunk has."""
    newest = max(chunks, key=lambda chunk: chunk.end).mean
    width = max(chunk.mean.shape[1] for chunk in chunks)
    return [_known(newest, at)[-1] if at < newest.shape[1] else None for at in range(width)]


def _grid(start: float, end: float, coarsest: int) -> TimeGrid:
    """Covers the whole period. A year in steps of a day has a few points more than MAX_POINTS."""
    seconds = max(end - start, 1.0)
    step = next((step for step in _STEPS if step >= coarsest and seconds / step <= MAX_POINTS - 1), _STEPS[-1])
    step = -(-step // coarsest) * coarsest
    first = int(start) // step * step
    return TimeGrid(first, step, max(1, -(-(int(end) + 1 - first) // step)))


def _known(values: SampleMatrix, column: int) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(value) else round(value, 3) for value in values[:, column].tolist())


def _summary(chunks: Sequence[SampleChunk], run_seconds: float) -> UsageSummary:
    """From all samples, not only from the points that are shown."""
    if not chunks:
        return UsageSummary()
    first, end = min(chunk.first for chunk in chunks), max(chunk.end for chunk in chunks)
    whole = resample_chunks(chunks, TimeGrid(first, end - first, 1))
    statistics = list(_statistics(whole, _last_row(chunks)))
    sampled = sum(chunk.step * chunk.known_steps for chunk in chunks)
    devices = tuple(DeviceStatistics(*pair) for pair in zip(statistics[2::2], statistics[3::2], strict=True))
    return UsageSummary(min(float(sampled), run_seconds), statistics[0], statistics[1], devices)


def _statistics(whole: SampleChunk, newest: Sequence[float | None]) -> Iterator[SeriesStatistics]:
    for column, last in enumerate(newest):
        (mean,), (peak,) = _known(whole.mean, column), _known(whole.max, column)
        yield SeriesStatistics(mean, peak, last)
