"""Usage of a job over all its attempts, and its efficiency report."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from heliostat.controller.transition_rules import OUT_OF_MEMORY
from heliostat.models import (
    AttemptRecord,
    AttemptUsage,
    DeviceStatistics,
    Job,
    JobId,
    JobState,
    Node,
    SeriesStatistics,
    UsageSummary,
)
from heliostat.models.quantities import parse_memory
from heliostat.models.samples import MEASURED_POWER_COLUMN, job_power_subject, job_subject
from heliostat.scheduling.feasibility import allows_data_class, could_ever_run, count_tasks_on_node, has_labels
from heliostat.services.cluster.job_devices import JobDevices
from heliostat.services.context import Context
from heliostat.services.efficiency import (
    EfficiencyReport,
    assess_efficiency,
    merge_accounting_usage,
    total_attempt_usage,
)
from heliostat.services.efficiency_facts import JobFacts, RequestLimits
from heliostat.services.energy import EnergyEstimate, own_part
from heliostat.store import jobs as stored
from heliostat.store.sample_chunks import (
    SampleChunk,
    SampleMatrix,
    TimeGrid,
    integrate_chunks,
    is_always_set,
    resample_chunks,
)
from heliostat.store.usage import list_attempt_usage


@dataclass(frozen=True, slots=True)
class JobUsage:
    """From the first start to the last end."""

    job: Job
    start_at: datetime
    end_at: datetime
    run_seconds: float  # of all attempts
    attempts: int  # that ran
    chunks: Sequence[SampleChunk]
    summary: UsageSummary
    devices: JobDevices
    energy: EnergyEstimate | None  # of its GPUs; None: their power is not known
    accounting_usage: AttemptUsage | None  # None: the engine has no accounting, or not yet


def load_job_usage(context: Context, job: Job) -> JobUsage:
    """Does not check permissions."""
    with context.store.read() as conn:
        attempts = [attempt for attempt in stored.list_attempts(conn, job.id) if attempt.started_at is not None]
        accounting_usage = total_attempt_usage(list_attempt_usage(conn, job.id))
    now = context.now()
    start = min((attempt.started_at for attempt in attempts if attempt.started_at), default=now)
    end = now if any(attempt.ended_at is None for attempt in attempts) else job.ended_at or now
    chunks = read_samples(context, job_subject(job.id), start.timestamp(), end.timestamp())
    run_seconds = sum(_seconds(attempt, now) for attempt in attempts)
    summary = merge_accounting_usage(_summary(chunks, run_seconds), accounting_usage)
    known = {device.uuid: device for node in context.node_inventory.nodes() for device in node.devices}
    devices = JobDevices.of_attempts(attempts, known)
    return JobUsage(
        job,
        start,
        end,
        run_seconds,
        len(attempts),
        chunks,
        summary,
        devices,
        _energy(context, job, start.timestamp(), end.timestamp()),
        accounting_usage,
    )


def job_facts(context: Context, usage: JobUsage) -> JobFacts:
    job, accounting = usage.job, usage.accounting_usage
    ran_out = (job.reason or "").startswith(OUT_OF_MEMORY) or (accounting is not None and accounting.out_of_memory)
    facts = JobFacts.of_job(job, usage.summary, usage.run_seconds, _request_limits(context, job))
    return replace(
        facts,
        attempts=usage.attempts,
        out_of_memory=ran_out and job.state is JobState.FAILED,
        gpu_memory_mib=usage.devices.memory_mib,
    )


def describe_efficiency(context: Context, job_id: JobId) -> str:
    """Sentences for a message to a user who may inspect the job; empty: there is nothing to say."""
    with context.store.read() as conn:
        job = stored.get_jobs_without_spec(conn, [job_id]).get(job_id)
    if job is None:
        return ""
    return assess_job(context, job, job_facts(context, load_job_usage(context, job))).summary


def assess_job(context: Context, job: Job, facts: JobFacts) -> EfficiencyReport:
    """Without a change that no node could run."""
    report = assess_efficiency(facts)
    return report if _is_feasible(context, job, report) else report.without_change()


def read_samples(context: Context, subject: str, start: float, end: float) -> list[SampleChunk]:
    """Chunks of this period, extended by one step at both ends."""
    return context.samples.read(subject, start - context.samples.step_seconds, end + context.samples.step_seconds)


def last_row(chunks: Sequence[SampleChunk]) -> list[float | None]:
    """The newest values, for as many columns as any chunk has."""
    newest = max(chunks, key=lambda chunk: chunk.end).mean
    width = max(chunk.mean.shape[1] for chunk in chunks)
    return [column_values(newest, at)[-1] if at < newest.shape[1] else None for at in range(width)]


def column_values(values: SampleMatrix, column: int) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(value) else round(value, 3) for value in values[:, column].tolist())


def _energy(context: Context, job: Job, start: float, end: float) -> EnergyEstimate | None:
    chunks = read_samples(context, job_power_subject(job.id), start, end)
    if not chunks:
        return None
    first, last = min(chunk.first for chunk in chunks), max(chunk.end for chunk in chunks)
    part = own_part(job.resources.gpus)
    is_measured = part == 1 and is_always_set(chunks, MEASURED_POWER_COLUMN)
    joules = integrate_chunks(chunks, first, last) * part
    return EnergyEstimate.of_joules(joules, context.settings.monitoring, is_measured=is_measured)


def _request_limits(context: Context, job: Job) -> RequestLimits:
    """Of the nodes that could run a task of it."""
    nodes = [node for node in _allowed_nodes(context, job) if count_tasks_on_node(node, job.resources)]
    return RequestLimits(
        max((node.cpus for node in nodes), default=job.resources.cpus),
        max((node.memory_mib for node in nodes), default=job.resources.memory_mib),
        context.settings.queue.max_time_limit_seconds,
        any(node.splits_devices for node in nodes),
    )


def _allowed_nodes(context: Context, job: Job) -> list[Node]:
    data_class = _data_class(context, job)
    nodes = context.node_inventory.nodes()
    return [
        node for node in nodes if allows_data_class(node, data_class) and has_labels(node, job.placement.labels)
    ]


def _data_class(context: Context, job: Job) -> int:
    project = context.scheduling_rules.share_accounts().projects.get(job.project)
    return 0 if project is None else project.data_class


def _is_feasible(context: Context, job: Job, report: EfficiencyReport) -> bool:
    if not report.change:
        return True
    fields = {**report.change}
    if "memory" in fields:
        fields["memory_mib"] = parse_memory(str(fields.pop("memory")))
    fields.pop("time_limit", None)
    changed = replace(job.resources, **fields)  # type: ignore[arg-type]
    return could_ever_run(context.node_inventory.nodes(), changed, job.placement, _data_class(context, job))


def _seconds(attempt: AttemptRecord, now: datetime) -> float:
    if attempt.started_at is None:
        return 0.0
    return max(0.0, ((attempt.ended_at or now) - attempt.started_at).total_seconds())


def _summary(chunks: Sequence[SampleChunk], run_seconds: float) -> UsageSummary:
    """From all samples, not only from the points that are shown."""
    if not chunks:
        return UsageSummary()
    first, end = min(chunk.first for chunk in chunks), max(chunk.end for chunk in chunks)
    whole = resample_chunks(chunks, TimeGrid(first, end - first, 1))
    statistics = list(_statistics(whole, last_row(chunks)))
    sampled = sum(chunk.step * chunk.known_steps for chunk in chunks)
    devices = tuple(DeviceStatistics(*pair) for pair in zip(statistics[2::2], statistics[3::2], strict=True))
    return UsageSummary(min(float(sampled), run_seconds), statistics[0], statistics[1], devices)


def _statistics(whole: SampleChunk, newest: Sequence[float | None]) -> Iterator[SeriesStatistics]:
    for column, last in enumerate(newest):
        (mean,), (peak,) = column_values(whole.mean, column), column_values(whole.max, column)
        yield SeriesStatistics(mean, peak, last)
