"""The idle ladder as the settings define it, and credit for jobs that their owners end before its last step."""

from dataclasses import replace
from datetime import datetime, timedelta

from heliostat.engines.contract import HasOwnQueue
from heliostat.fair_use.credit import EarlyReturn, early_return
from heliostat.fair_use.ladder import IdlePolicy, planned_steps, steps_for
from heliostat.models import Caller, Job
from heliostat.models.fair_use import IdleState, IdleStep
from heliostat.services.context import Context
from heliostat.store import idle_jobs as stored
from heliostat.store import job_writes
from heliostat.store.database import Transaction

CREDIT_PERIOD = timedelta(days=7)
_MESSAGES = (IdleStep.NOTE, IdleStep.MESSAGE, IdleStep.MANAGER)


def idle_policy(context: Context) -> IdlePolicy:
    """On an engine with its own queue only notes and messages: there the use of GPUs comes from exporters on the
    nodes, which a program of a user can imitate."""
    settings = context.settings.fair_use
    possible = _MESSAGES if isinstance(context.engine, HasOwnQueue) else tuple(IdleStep)
    return IdlePolicy(
        tuple(step for step in possible if step.value in settings.idle_steps),
        timedelta(minutes=settings.idle_minutes),
        timedelta(minutes=settings.answer_minutes),
        settings.idle_percent,
    )


def all_gpus(job: Job) -> float:
    """Of all its tasks."""
    return job.resources.gpus * job.placement.tasks


def record_early_return(context: Context, caller: Caller, tx: Transaction, job: Job) -> None:
    """Part of the transaction in which the owner ends a running job: credit, if it is between the first and the
    last step of the ladder. At most once for a job."""
    state = stored.find_idle_state(tx.conn, job.id)
    if caller.user.name != job.user or state is None or state.attempt != job.attempt or state.returned_gpu_hours:
        return
    returned = _early_return(context, job, state)
    if returned.gpu_hours <= 0:
        return
    stored.set_idle_state(tx, replace(state, returned_gpu_hours=returned.gpu_hours))
    now, weekly = context.now(), context.settings.fair_use.credit_gpu_hours_per_week
    given = stored.sum_credit(tx.conn, now - CREDIT_PERIOD, job.user).get((job.project, job.user), 0.0)
    if (credit := min(returned.credit_gpu_hours, weekly - given)) > 0:
        job_writes.update_job(tx, job.id, {"credit_gpu_hours": credit})
        job_writes.add_job_event(tx, job, "credited", f"{credit:.2f} GPU-hours are not charged", now)


def _early_return(context: Context, job: Job, state: IdleState) -> EarlyReturn:
    policy = idle_policy(context)
    planned = planned_steps(policy, steps_for(policy, job), state)
    last = planned[-1].at if planned else None
    return early_return(state, last, _limit_at(job), all_gpus(job), context.now())


def _limit_at(job: Job) -> datetime | None:
    if job.started_at is None or job.time_limit_seconds is None:
        return None
    return job.started_at + timedelta(seconds=job.time_limit_seconds)
