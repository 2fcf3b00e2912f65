"""Takes the due steps of the idle ladder for all running jobs.

A step and the state that records it are one transaction, guarded by the state it was decided from: after a crash
no step is taken twice.
"""

from datetime import datetime

from heliostat.fair_use.ladder import (
    ENDING_STEPS,
    IdlePolicy,
    PlannedStep,
    climb,
    is_judged,
    planned_steps,
    steps_for,
)
from heliostat.fair_use.utilisation import STEP_SECONDS, GpuUtilisation
from heliostat.models import Job, JobState
from heliostat.models.amounts import format_count
from heliostat.models.fair_use import IDLE_EVENT, IDLE_MANAGER_EVENT, IdleState, IdleStep
from heliostat.models.samples import job_subject
from heliostat.models.sessions import JUPYTER_APPS
from heliostat.services.context import Context
from heliostat.services.idle_policy import all_gpus, idle_policy
from heliostat.services.sessions.idle_culler import poll_jupyter_activity
from heliostat.store import idle_jobs as stored
from heliostat.store import job_writes
from heliostat.store import jobs as stored_jobs
from heliostat.store import sessions as stored_sessions
from heliostat.store.database import Transaction
from heliostat.store.sample_chunks import TimeGrid, in_steps, resample_chunks

_EVENT_KINDS = {
    IdleStep.NOTE: "idle_note",
    IdleStep.MESSAGE: IDLE_EVENT,
    IdleStep.MANAGER: IDLE_MANAGER_EVENT,
    IdleStep.PREEMPT: "preempt_requested",
    IdleStep.END: "cancel_requested",
}
_CONSEQUENCES = {
    IdleStep.NOTE: "a note is shown",
    IdleStep.MESSAGE: "its owner gets a message",
    IdleStep.MANAGER: "the managers of its project get a message",
    IdleStep.PREEMPT: "the job goes back to the queue",
    IdleStep.END: "the job ends",
}


def check_idle_gpus(context: Context) -> None:
    """Errors of single jobs are raised together at the end."""
    policy = idle_policy(context)
    if not policy.steps:
        return
    with context.store.read() as conn:
        jobs = [job for job in stored.list_running_gpu_jobs(conn) if is_judged(job) and not job.stop_requested]
        states = stored.get_idle_states(conn, [job.id for job in jobs])
        ended = stored.list_ended_idle_jobs(conn)
    failures: list[Exception] = []
    for job in jobs:
        try:
            _check_job(context, policy, job, states.get(job.id))
        except Exception as error:  # noqa: BLE001 - the other jobs must still be checked
            failures.append(error)
    if ended:
        context.store.write(lambda tx: stored.remove_idle_jobs(tx, ended))
    if failures:
        raise ExceptionGroup("some jobs were not checked for idle GPUs", failures)


def describe_step(planned: PlannedStep) -> str:
    """A sentence without its time."""
    return f"Unless they are used, {_CONSEQUENCES[planned.step]}"


def _check_job(context: Context, policy: IdlePolicy, job: Job, stored_state: IdleState | None) -> None:
    before = stored_state or IdleState(job.id, job.attempt)
    current = before if before.attempt == job.attempt else IdleState(job.id, job.attempt, answers=before.answers)
    steps, now = steps_for(policy, job), context.now()
    after, step = climb(policy, steps, current, _idle_since(context, policy, job, current), now)
    if after == before or (step is not None and _runs_a_cell(context, job)):
        return

    def change(tx: Transaction) -> None:
        running = stored_jobs.get_job(tx.conn, job.id)
        if running is None or running.state is not JobState.RUNNING or running.attempt != job.attempt:
            return
        if running.stop_requested or stored.find_idle_state(tx.conn, job.id) != stored_state:
            return
        stored.set_idle_state(tx, after)
        if step is not None:
            _take_step(tx, running, step, _describe(running, after, planned_steps(policy, steps, after)), now)

    context.store.write(change)


def _idle_since(context: Context, policy: IdlePolicy, job: Job, state: IdleState) -> datetime | None:
    """Looks back to the last step, but at least for one window."""
    now = context.now()
    begin = min(state.step_at or now, now - policy.window)
    if job.started_at is None or job.started_at > now - policy.window:
        return None  # it may still load its data
    first = int(begin.timestamp()) // STEP_SECONDS * STEP_SECONDS
    count = int(now.timestamp()) // STEP_SECONDS - first // STEP_SECONDS
    used = read_gpu_utilisation(context, job, first, count)
    since = used.idle_since(policy.idle_percent)
    return None if since is None else max(datetime.fromtimestamp(since, now.tzinfo), job.started_at)


def read_gpu_utilisation(context: Context, job: Job, first: int, count: int) -> GpuUtilisation:
    chunks = context.samples.read(job_subject(job.id), first, first + count * STEP_SECONDS)
    steps = [in_steps(chunk, STEP_SECONDS) for chunk in chunks]
    values = resample_chunks(steps, TimeGrid(first, STEP_SECONDS, count)).mean
    return GpuUtilisation.from_samples(first, values, int(all_gpus(job)))


def _runs_a_cell(context: Context, job: Job) -> bool:
    """Whether a notebook computes now, for example on its CPUs. Also True if JupyterLab does not answer: a step
    then waits."""
    if job.kind != "session":
        return False
    with context.store.read() as conn:
        session = stored_sessions.find_session(conn, job.id)
    if session is None or session.app not in JUPYTER_APPS:
        return False
    activity = poll_jupyter_activity(context, job)
    return activity is None or activity[0]


def _describe(job: Job, state: IdleState, planned: tuple[PlannedStep, ...]) -> str:
    since = f"{state.idle_since:%H:%M}" if state.idle_since else "a while"
    gpus = int(all_gpus(job))
    unused = (
        f"its {'GPU has' if gpus == 1 else format_count(gpus, 'GPU') + ' have'} not been used since {since} UTC"
    )
    if state.step in ENDING_STEPS:
        return unused
    following = f"{describe_step(planned[0])} at {planned[0].at:%H:%M} UTC" if planned else ""
    answer = f"To keep them: helio keep {job.id} --for 4h"
    return ". ".join(filter(None, [unused, following, answer]))


def _take_step(tx: Transaction, job: Job, step: IdleStep, detail: str, now: datetime) -> None:
    if step in ENDING_STEPS:
        stop_kind = "preempt" if step is IdleStep.PREEMPT else "cancel"
        detail = f"{'preempted' if step is IdleStep.PREEMPT else 'ended'} because {detail}"
        job_writes.update_job(tx, job.id, {"stop_requested": stop_kind, "reason": detail})
    job_writes.add_job_event(tx, job, _EVENT_KINDS[step], detail, now)
