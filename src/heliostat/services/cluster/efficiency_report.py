"""Efficiency of the ended jobs of a user or a project, the largest waste first."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from heliostat.models import TERMINAL_STATES, Caller, Job
from heliostat.services.cluster.job_usage import JobUsage, assess_job, job_facts, load_job_usage
from heliostat.services.context import Context
from heliostat.services.efficiency import EfficiencyReport
from heliostat.services.efficiency_facts import JobFacts
from heliostat.store import jobs as stored

MAX_JOBS = 500  # the newest; each needs a few queries
_DEFAULT_PERIOD = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class JobEfficiency:
    """What an ended job used."""

    job: Job
    usage: JobUsage
    report: EfficiencyReport
    unused_gpu_hours: float  # 1 GPU that was busy a quarter of 4 hours: 3
    unused_cpu_hours: float


def list_job_efficiency(
    context: Context, caller: Caller, project: str | None = None, since: datetime | None = None
) -> list[JobEfficiency]:
    """Judged jobs that ended since then, by default in the last week: the caller's own, or of a project that the
    caller manages all. Of other projects, the caller's own jobs."""
    owner = None if project is not None and caller.user.may_manage(project) else caller.user.name
    since = since or context.now() - _DEFAULT_PERIOD
    job_filter = stored.JobFilter(states=TERMINAL_STATES, user=owner, project=project, ended_after=since)
    with context.report_limit.acquire(caller.user.name):
        with context.store.read() as conn:
            jobs = stored.list_jobs(conn, job_filter, MAX_JOBS)
        found = [_assess(context, job) for job in jobs if job.kind == "batch" and job.origin is None]
    judged = [each for each in found if each.report.judged]
    return sorted(judged, key=lambda each: (-each.unused_gpu_hours, -each.unused_cpu_hours, each.job.id))


def _assess(context: Context, job: Job) -> JobEfficiency:
    usage = load_job_usage(context, job)
    facts = job_facts(context, usage)
    hours = usage.run_seconds / 3600
    mean_cpus = facts.used.cpus.mean
    unused_cpus = 0.0 if mean_cpus is None else max(0.0, facts.cpus - mean_cpus)
    report = assess_job(context, job, facts)
    return JobEfficiency(job, usage, report, round(_unused_gpus(facts) * hours, 3), round(unused_cpus * hours, 3))


def _unused_gpus(facts: JobFacts) -> float:
    """On average. Of a shared GPU it is not known who used it."""
    if facts.requested.gpus < 1:
        return 0.0
    means = (device.utilisation.mean for device in facts.used.devices)
    return sum(1 - min(mean, 100.0) / 100 for mean in means if mean is not None)
