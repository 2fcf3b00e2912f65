"""Usage statistics of jobs, nodes and the cluster over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from heliostat.models import AttemptUsage, Caller, JobId, TimeSeries, UsageSummary
from heliostat.models.samples import CLUSTER_COLUMNS, CLUSTER_SUBJECT, node_subject, usage_columns
from heliostat.services.cluster.job_devices import JobDevices
from heliostat.services.cluster.job_usage import (
    assess_job,
    column_values,
    job_facts,
    last_row,
    load_job_usage,
    read_samples,
)
from heliostat.services.cluster.nodes import get_node
from heliostat.services.context import Context
from heliostat.services.efficiency import EfficiencyReport, RequestedResources
from heliostat.services.energy import EnergyEstimate
from heliostat.services.permissions import require_inspectable_job
from heliostat.store.sample_chunks import SampleChunk, TimeGrid, resample_chunks
from heliostat.store.timestamps import to_datetime

__all__ = [
    "ClusterStats",
    "EfficiencyReport",
    "JobStats",
    "NodeStats",
    "RequestedResources",
    "StatsPeriod",
    "TimeSeries",
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
    run_seconds: float
    summary: UsageSummary
    efficiency: EfficiencyReport
    devices: JobDevices  # in the order of the series
    energy: EnergyEstimate | None = None  # of its GPUs; None: their power is not known
    accounting_usage: AttemptUsage | None = None  # of all ended attempts, if the engine has accounting


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
    usage = load_job_usage(context, job)
    return JobStats(
        job_id,
        RequestedResources.from_job(job),
        _series(usage.chunks, usage.start_at.timestamp(), usage.end_at.timestamp(), None),
        usage.run_seconds,
        usage.summary,
        assess_job(context, job, job_facts(context, usage)),
        usage.devices,
        usage.energy,
        usage.accounting_usage,
    )


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
    return _series(read_samples(context, subject, start, end), start, end, columns)


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
    start_at, newest = to_datetime(float(grid.first)), last_row(chunks)
    return tuple(
        TimeSeries(
            name,
            unit,
            start_at,
            grid.step,
            column_values(resampled.mean, at),
            column_values(resampled.max, at),
            newest[at],
        )
        for at, (name, unit) in enumerate(names)
        if at < resampled.mean.shape[1]
    )


def _grid(start: float, end: float, coarsest: int) -> TimeGrid:
    """Covers the whole period. A year in steps of a day has a few points more than MAX_POINTS."""
    seconds = max(end - start, 1.0)
    step = next((step for step in _STEPS if step >= coarsest and seconds / step <= MAX_POINTS - 1), _STEPS[-1])
    step = -(-step // coarsest) * coarsest
    first = int(start) // step * step
    return TimeGrid(first, step, max(1, -(-(int(end) + 1 - first) // step)))
