"""Waste report: GPU-hours granted, used, idle and returned, by department, project or user.

A GPU is used in a step of five minutes if its mean utilisation is at least `fair_use.idle_percent`, and idle if
it is less. Only idle GPUs are waste: a GPU that works at half its speed cannot be given to another job.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from heliostat.fair_use.utilisation import STEP_SECONDS, GpuUtilisation
from heliostat.models import Caller, JobId
from heliostat.models.samples import JOB_PREFIX, job_subject
from heliostat.services.cluster.usage_reports import PeriodRequest, report_csv, report_scope, resolve_period
from heliostat.services.context import Context
from heliostat.store.sample_chunks import in_steps
from heliostat.store.usage_report import GpuJob, ReportPeriod, list_gpu_jobs

_DECIMALS = 2


@dataclass(frozen=True, slots=True)
class WasteReportLine:
    """One department, project or user in one period, in GPU-hours. What is granted and neither used nor idle was
    not measured."""

    period: str
    name: str
    jobs: int  # with GPUs
    granted_gpu_hours: float
    used_gpu_hours: float
    idle_gpu_hours: float
    returned_gpu_hours: float  # given back early after a note


def waste_report(context: Context, caller: Caller, requested: PeriodRequest, by: str) -> list[WasteReportLine]:
    """The most idle first. Who sees which jobs is as in the usage report."""
    name, period = resolve_period(requested, context.now())
    with context.report_limit.acquire(caller.user.name):
        with context.store.read() as conn:
            jobs = list_gpu_jobs(conn, period, report_scope(caller))
        measured = measure_use(context, jobs, period)
    groups: dict[str, list[GpuJob]] = defaultdict(list)
    for job in jobs:
        groups[getattr(job, by)].append(job)
    lines = [_line(name, group, members, measured) for group, members in groups.items()]
    return sorted(lines, key=lambda line: (-line.idle_gpu_hours, -line.granted_gpu_hours, line.name))


waste_report_csv = partial(report_csv, WasteReportLine)


@dataclass(slots=True)
class MeasuredUse:
    used: float = 0.0  # GPU-hours
    idle: float = 0.0


def measure_use(context: Context, jobs: Iterable[GpuJob], period: ReportPeriod) -> Mapping[JobId, MeasuredUse]:
    """Used and idle GPU-hours by job; never more than it was granted."""
    by_subject = {job_subject(job.job_id): job for job in jobs}
    measured = {job.job_id: MeasuredUse() for job in by_subject.values()}
    start, end = int(period.start.timestamp()), int(min(period.end, period.now).timestamp())
    percent = context.settings.fair_use.idle_percent
    for subject, chunk in context.samples.scan(JOB_PREFIX, start, end):
        job = by_subject.get(subject)
        if job is None or job.gpus != int(job.gpus):
            continue  # another period or user; the utilisation of a shared GPU includes the work of other jobs
        steps = in_steps(chunk, STEP_SECONDS)
        first = max(0, -(-(start - steps.first) // STEP_SECONDS))
        inside = steps.mean[first : max(first, (end - 1 - steps.first) // STEP_SECONDS + 1)]
        used, idle = GpuUtilisation.from_samples(steps.first, inside, int(job.gpus) * job.tasks).hours(percent)
        measured[job.job_id].used += used
        measured[job.job_id].idle += idle
    for job in by_subject.values():
        _limit(measured[job.job_id], job.gpu_hours)
    return measured


def _limit(measured: MeasuredUse, granted: float) -> None:
    """The first and the last step of an attempt are rarely whole."""
    total = measured.used + measured.idle
    if total > granted:
        measured.used, measured.idle = (part * granted / total for part in (measured.used, measured.idle))


def _line(period: str, name: str, jobs: list[GpuJob], measured: Mapping[JobId, MeasuredUse]) -> WasteReportLine:
    return WasteReportLine(
        period,
        name,
        len(jobs),
        round(sum(job.gpu_hours for job in jobs), _DECIMALS),
        round(sum(measured[job.job_id].used for job in jobs), _DECIMALS),
        round(sum(measured[job.job_id].idle for job in jobs), _DECIMALS),
        round(sum(job.returned_gpu_hours for job in jobs), _DECIMALS),
    )
