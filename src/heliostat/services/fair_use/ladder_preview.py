"""What the idle ladder would have done in a past period, for admins who think of turning its steps on."""

from dataclasses import dataclass, replace
from datetime import timedelta

from heliostat.fair_use.ladder import PlannedStep, is_judged, steps_for
from heliostat.fair_use.replay import replay_ladder
from heliostat.fair_use.utilisation import STEP_SECONDS
from heliostat.models import AttemptRecord, Caller, Job, JobId
from heliostat.models.fair_use import IdleStep
from heliostat.services.cluster.usage_reports import PeriodRequest, resolve_period
from heliostat.services.context import Context
from heliostat.services.fair_use.idle_ladder import read_gpu_utilisation
from heliostat.services.fair_use.waste_report import measure_use
from heliostat.services.idle_policy import all_gpus, idle_policy
from heliostat.services.permissions import require_admin
from heliostat.store import jobs as stored_jobs
from heliostat.store.usage_report import ReportPeriod, list_gpu_jobs


@dataclass(frozen=True, slots=True)
class IdleJobPreview:
    """What the ladder would have done to an attempt."""

    job_id: JobId
    attempt: int
    user: str
    project: str
    gpus: int
    steps: tuple[PlannedStep, ...]
    returned_gpu_hours: float  # from the step that ends it until its real end


def preview_idle_ladder(context: Context, caller: Caller, requested: PeriodRequest) -> list[IdleJobPreview]:
    """With all steps, as if no answer had come; the most GPU-hours first. Admins only."""
    require_admin(caller.user)
    _, period = resolve_period(requested, context.now())
    policy = replace(idle_policy(context), steps=tuple(IdleStep))
    with context.report_limit.acquire(caller.user.name):
        with context.store.read() as conn:
            ran = list_gpu_jobs(conn, period)
        measured = measure_use(context, ran, period)
        window = policy.window / timedelta(hours=1)
        idle = [job.job_id for job in ran if measured[job.job_id].idle >= window * job.gpus * job.tasks]
        with context.store.read() as conn:
            jobs = stored_jobs.get_jobs_without_spec(conn, idle)
            attempts = [
                (job, attempt)
                for job in jobs.values()
                if is_judged(job)
                for attempt in stored_jobs.list_attempts(conn, job.id)
            ]
        previews = [preview for job, one in attempts if (preview := _preview(context, job, one, period)).steps]
    return sorted(previews, key=lambda preview: (-preview.returned_gpu_hours, preview.job_id))


def _preview(context: Context, job: Job, attempt: AttemptRecord, period: ReportPeriod) -> IdleJobPreview:
    policy = replace(idle_policy(context), steps=tuple(IdleStep))
    now = min(period.end, period.now)
    begin, end = max(attempt.started_at or now, period.start), min(attempt.ended_at or now, now)
    gpus = int(all_gpus(job))
    none = IdleJobPreview(job.id, attempt.number, job.user, job.project, gpus, (), 0.0)
    first = int(begin.timestamp()) // STEP_SECONDS * STEP_SECONDS
    count = (int(end.timestamp()) - first) // STEP_SECONDS
    if count <= 0:
        return none
    used = read_gpu_utilisation(context, job, first, count)
    replayed = replay_ladder(policy, steps_for(policy, job), used, begin, end)
    hours = round(replayed.returned / timedelta(hours=1) * gpus, 2)
    return replace(none, steps=replayed.steps, returned_gpu_hours=hours)
