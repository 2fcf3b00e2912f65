"""Answers to the idle ladder: "I need the GPUs until 15:00"."""

from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from heliostat.config import FairUseSettings
from heliostat.errors import Conflict, NotFound, invalid_field
from heliostat.fair_use.ladder import is_judged, planned_steps, steps_for
from heliostat.models import Caller, Job, JobId, JobState, User
from heliostat.models.fair_use import IdleState
from heliostat.services.context import Context
from heliostat.services.fair_use.idle_ladder import describe_step
from heliostat.services.idle_policy import idle_policy
from heliostat.services.permissions import require_inspectable, require_inspectable_job, write_as_caller
from heliostat.store import accounts, job_writes
from heliostat.store import idle_jobs as stored
from heliostat.store import jobs as stored_jobs
from heliostat.store.database import Transaction

_MORNING = time(9)


@dataclass(frozen=True, slots=True)
class IdleNotice:
    """What the page of a job says about its idle GPUs."""

    idle_since: datetime | None  # None: used, or kept by an answer
    kept_until: datetime | None  # None: no answer, or its time has passed
    next_step: str  # a sentence without its time; empty: there is no further step
    next_step_at: datetime | None
    answers_left: int


def keep_gpus(context: Context, caller: Caller, job_id: JobId, until: datetime) -> datetime:
    """For the owner of the job and managers of its project: no step is taken until then. Returns this time."""
    require_inspectable_job(context, caller, job_id)
    now, settings = context.now(), context.settings.fair_use
    if until <= now:
        raise invalid_field("until", "is not in the future")
    if until > now + timedelta(hours=settings.max_answer_hours):
        raise invalid_field("until", f"must be at most {settings.max_answer_hours:g} hours ahead")

    def change(tx: Transaction, actor: User) -> None:
        job = stored_jobs.get_job(tx.conn, job_id)
        if job is None:
            raise NotFound(f"There is no job {job_id}.", "`helio ps --all` lists your jobs.")
        require_inspectable(replace(caller, user=actor), job)
        state = stored.find_idle_state(tx.conn, job_id) or IdleState(job_id, job.attempt)
        _require_answerable(settings, job, state)
        stored.set_idle_state(tx, _restart_at(until, job, state))
        detail = f"{actor.name} needs the GPUs until {until:%Y-%m-%d %H:%M} UTC"
        job_writes.add_job_event(tx, job, "kept", detail, now)
        details: dict[str, object] = {"until": until.isoformat(), "answer": state.answers + 1}
        accounts.add_audit_entry(tx, caller, "job.keep", f"job {job_id}", details, now)

    write_as_caller(context, caller, change)
    return until


def _restart_at(until: datetime, job: Job, state: IdleState) -> IdleState:
    """The ladder begins again when the time has passed."""
    return IdleState(job.id, job.attempt, kept_until=until, answers=state.answers + 1)


def keep_choices(context: Context) -> tuple[tuple[str, datetime], ...]:
    """Labels and times of the answers that a page offers."""
    now, settings = context.now(), context.settings
    latest = now + timedelta(hours=settings.fair_use.max_answer_hours)
    local = now.astimezone(ZoneInfo(settings.server.effective_time_zone))
    morning = datetime.combine(local.date() + timedelta(days=1), _MORNING, local.tzinfo)
    choices = {"1 hour": now + timedelta(hours=1), "4 hours": now + timedelta(hours=4), "tomorrow 9:00": morning}
    return tuple((label, until) for label, until in choices.items() if until <= latest)


def idle_notice(context: Context, job: Job) -> IdleNotice | None:
    """None: nothing to say. The caller must be allowed to inspect the job."""
    if job.state is not JobState.RUNNING or not is_judged(job):
        return None
    with context.store.read() as conn:
        state = stored.find_idle_state(conn, job.id)
    if state is None or state.attempt != job.attempt:
        return None
    kept_until = state.kept_until if state.kept_until and state.kept_until > context.now() else None
    if state.step is None and kept_until is None:
        return None
    policy = idle_policy(context)
    planned = planned_steps(policy, steps_for(policy, job), state)
    left = max(0, context.settings.fair_use.max_answers - state.answers)
    text, at = (describe_step(planned[0]), planned[0].at) if planned else ("", None)
    return IdleNotice(state.idle_since, kept_until, text, at, left)


def _require_answerable(settings: FairUseSettings, job: Job, state: IdleState) -> None:
    if job.state is not JobState.RUNNING or job.stop_requested:
        now = "being stopped" if job.stop_requested else job.state.value
        raise Conflict(
            f"Job {job.id} is {now}; only a running job can keep its GPUs.", f"See `helio show {job.id}`."
        )
    if not is_judged(job):
        raise Conflict(
            f"Job {job.id} needs no answer: no step is ever taken for it.",
            "Only batch jobs and sessions with whole GPUs are checked.",
        )
    if state.answers >= settings.max_answers:
        raise Conflict(
            f"Job {job.id} has used all its answers ({settings.max_answers}).",
            f"Use the GPUs, or save your work and end it: helio cancel {job.id}.",
        )
