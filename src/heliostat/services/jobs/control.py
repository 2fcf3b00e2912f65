"""Verbs on jobs that exist: cancel, hold, release, requeue, more time."""

from collections.abc import Callable, Sequence
from typing import Any

from heliostat.errors import Conflict, Forbidden, Invalid, NotFound, invalid_field
from heliostat.models import ACTIVE_STATES, Attempt, Caller, Job, JobId, JobState
from heliostat.models.quantities import parse_duration
from heliostat.services.context import Context, require_program_engine
from heliostat.services.environments.lifecycle import check_may_stop_build
from heliostat.services.permissions import require_inspectable, require_inspectable_job
from heliostat.store import accounts, transitions
from heliostat.store import jobs as stored
from heliostat.store.database import Transaction
from heliostat.store.jobs import get_jobs_without_spec


def cancel_job(context: Context, caller: Caller, job_id: JobId, *, force: bool = False) -> Job:
    """Waiting: over at once. Running: TERM, grace, KILL; with `force`, KILL at once. Already over is success."""
    action, step = ("job.kill", _kill) if force else ("job.cancel", _cancel)
    return _change(context, caller, job_id, action, step)


def cancel_jobs(
    context: Context,
    caller: Caller,
    job_ids: Sequence[JobId],
    array_id: int | None = None,
    *,
    force: bool = False,
) -> list[JobId]:
    """Those named and those of the array, all in one transaction; the ids of the ones that were not over."""
    how = "kill" if force else "cancel"
    wanted = list(job_ids) + (list_array_job_ids(context, array_id) if array_id is not None else [])

    def change(tx: Transaction) -> list[JobId]:
        jobs = get_jobs_without_spec(tx.conn, wanted)
        for job_id in wanted:
            require_inspectable(caller, _there(jobs.get(job_id), job_id))
        unfinished = [job for job in jobs.values() if not job.is_terminal]
        for job in unfinished:
            check_may_stop_build(tx, caller, job)
        _end(context, caller, tx, unfinished, how)
        target = f"array {array_id}" if array_id is not None else f"{len(wanted)} jobs"
        accounts.add_audit_entry(tx, caller, f"job.{how}", target, {"jobs": len(unfinished)}, context.now())
        return [job.id for job in unfinished]

    return context.store.write(change)


def cancel_in_transaction(context: Context, caller: Caller, tx: Transaction, job: Job) -> None:
    """As part of a larger change, whose maker has checked the rights."""
    _cancel(context, caller, tx, job)


def hold_job(context: Context, caller: Caller, job_id: JobId) -> Job:
    """Keep a waiting job from starting."""
    return _change(context, caller, job_id, "job.hold", _hold)


def release_job(context: Context, caller: Caller, job_id: JobId) -> Job:
    """Let a held job take its place in the queue again."""
    return _change(context, caller, job_id, "job.release", _release)


def requeue_job(context: Context, caller: Caller, job_id: JobId) -> Job:
    """Stop the running attempt and put the job back into the queue."""
    return _change(context, caller, job_id, "job.requeue", _requeue)


def record_checkpoint(context: Context, caller: Caller, job_id: JobId) -> Job:
    """It has saved its work by now. Only its owner can know that, or an admin who stands in for them."""
    require_inspectable_job(context, caller, job_id)

    def change(tx: Transaction) -> Job:
        _note_checkpoint(context, caller, tx, _there(stored.get_job(tx.conn, job_id), job_id))
        return _there(stored.get_job(tx.conn, job_id), job_id)

    return context.store.write(change)


def list_array_job_ids(context: Context, array_id: int) -> list[JobId]:
    with context.store.read() as conn:
        found = stored.list_jobs(conn, stored.JobFilter(array_id=array_id), limit=100_000)
    if not found:
        raise NotFound(f"There is no array {array_id}.", "`helio ps --all` shows the arrays of your jobs.")
    return [job.id for job in reversed(found)]


_Step = Callable[[Context, Caller, Transaction, Job], None]


def _change(context: Context, caller: Caller, job_id: JobId, action: str, step: _Step) -> Job:
    require_inspectable_job(context, caller, job_id)

    def change(tx: Transaction) -> Job:
        job = _there(stored.get_job(tx.conn, job_id), job_id)
        check_may_stop_build(tx, caller, job)
        step(context, caller, tx, job)
        accounts.add_audit_entry(tx, caller, action, f"job {job_id}", {}, context.now())
        return _there(stored.get_job(tx.conn, job_id), job_id)

    return context.store.write(change)


def _cancel(context: Context, caller: Caller, tx: Transaction, job: Job) -> None:
    _end(context, caller, tx, [job], "cancel")


def _kill(context: Context, caller: Caller, tx: Transaction, job: Job) -> None:
    _end(context, caller, tx, [job], "kill")


def _end(context: Context, caller: Caller, tx: Transaction, jobs: Sequence[Job], how: str) -> None:
    now, reason = context.now(), f"cancelled by {caller.user.name}"
    left = [job for job in jobs if not job.is_terminal and job.stop_requested not in ("kill", how)]
    for job in left:
        if job.state in ACTIVE_STATES:
            _ask_to_stop(context, tx, job, how, reason)
    waiting = [job.id for job in left if job.state not in ACTIVE_STATES]
    transitions.apply_transitions(
        tx, [transitions.cancellation_transition(reason, job_id, now) for job_id in waiting]
    )


def _hold(context: Context, caller: Caller, tx: Transaction, job: Job) -> None:
    if job.state is JobState.HELD:
        return
    if job.state is not JobState.PENDING:
        goes_on = f"`helio cancel {job.id}` ends it, `helio requeue {job.id}` puts it back into the queue."
        raise Conflict(
            f"Job {job.id} is {job.state}; only a waiting job can be held.",
            f"`helio rerun {job.id}` submits it again." if job.is_terminal else goes_on,
        )
    now, reason = context.now(), f"held by {caller.user.name}"
    values = {"reason": reason, "waited_seconds": job.queue_wait_seconds(now), "waits_since": None}
    transitions.apply_transitions(
        tx, [transitions.JobTransition(job.id, JobState.HELD, "held", now, None, values, reason)]
    )


def _release(context: Context, caller: Caller, tx: Transaction, job: Job) -> None:
    if job.state is JobState.PENDING:
        return
    if job.state is not JobState.HELD:
        raise Conflict(f"Job {job.id} is {job.state}, not held.", "Only held jobs can be released.")
    values = {"reason": None, "waits_since": context.now()}  # what passed meanwhile was no waiting
    transitions.apply_transitions(
        tx, [transitions.JobTransition(job.id, JobState.PENDING, "released", context.now(), None, values)]
    )


def _requeue(context: Context, caller: Caller, tx: Transaction, job: Job) -> None:
    if job.is_terminal:
        raise Conflict(
            f"Job {job.id} is {job.state}; what is over never changes.",
            f"Submit it again: helio rerun {job.id}",
        )
    if job.state not in ACTIVE_STATES or job.stop_requested:
        return
    _ask_to_stop(context, tx, job, "requeue", f"requeued by {caller.user.name}")


def _note_checkpoint(context: Context, caller: Caller, tx: Transaction, job: Job) -> None:
    if job.user != caller.user.name and not caller.user.is_admin:
        raise Forbidden(f"Only {job.user} can say that job {job.id} has saved its work.", "Leave it to the job.")
    if job.state is not JobState.RUNNING:
        raise Conflict(
            f"Job {job.id} is {job.state}; only a running job saves its work.",
            "Call `helio checkpointed` from within the job.",
        )
    now = context.now()
    transitions.update_job(tx, job.id, {"checkpointed_at": now})
    transitions.add_job_event(tx, job, "checkpointed", None, now)


def _ask_to_stop(context: Context, tx: Transaction, job: Job, what: str, reason: str) -> None:
    values: dict[str, Any] = {"stop_requested": what, "reason": reason}
    transitions.update_job(tx, job.id, values)
    transitions.add_job_event(tx, job, f"{what}_requested", reason, context.now())


def _there(job: Job | None, job_id: JobId) -> Job:
    if job is None:
        raise NotFound(f"There is no job {job_id}.", "`helio ps --all` lists your jobs.")
    return job


def extend_job(context: Context, caller: Caller, job_id: JobId, seconds: int) -> Job:
    """So much longer than its limit says now. Sessions by their owner; batch jobs only by who manages the project:
    others planned with the limit they were submitted with."""
    job = require_inspectable_job(context, caller, job_id)
    if job.kind != "session" and not caller.user.may_manage(job.project):
        hint = f"Ask a manager of project {job.project} or an admin."
        raise Forbidden("Only sessions can be extended by their owners: others planned with this limit.", hint)
    limit = _new_limit(context, job, seconds)
    if job.state in ACTIVE_STATES or job.dispatched:
        _tell_engine(context, job, limit)

    def change(tx: Transaction) -> Job:
        found = stored.get_job(tx.conn, job_id)
        if found is None or found.is_terminal or found.attempt != job.attempt or found.time_limit_seconds is None:
            raise _changed(job_id)
        longer = max(limit, found.time_limit_seconds)
        transitions.update_job(tx, job_id, {"time_limit_seconds": longer})
        transitions.add_job_event(tx, found, "limit_changed", f"its time limit is now {longer} s", context.now())
        accounts.add_audit_entry(tx, caller, "job.extend", f"job {job_id}", {"time_limit": longer}, context.now())
        return stored.get_job(tx.conn, job_id) or found

    return context.store.write(change)


def parse_seconds(text: str) -> int:
    """`2h`, `30m`… Raises Invalid."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise invalid_field("time", str(error)) from None


def _new_limit(context: Context, job: Job, seconds: int) -> int:
    if seconds < 1:
        raise invalid_field("time", "must be at least a second")
    if job.is_terminal or job.stop_requested:
        raise Conflict(f"Job {job.id} is {job.state}; its time is over.", f"See `helio show {job.id}`.")
    if job.time_limit_seconds is None:
        raise Conflict(f"Job {job.id} has no time limit.", "It needs no more time.")
    limit, most = job.time_limit_seconds + seconds, context.settings.queue.max_time_limit_seconds
    if limit > most:
        said = f"must be at most {max(0, most - job.time_limit_seconds)} seconds more"
        raise Invalid(f"The longest time limit here is {most} seconds.", "Ask for less.", fields={"time": said})
    return limit


def _tell_engine(context: Context, job: Job, limit: int) -> None:
    try:
        require_program_engine(context).extend_time_limit(
            Attempt(job.attempt_id, job, job.node or "", job.devices, job.places), limit
        )
    except OSError as error:
        raise Conflict(f"Job {job.id} cannot be extended: {error.strerror}.", "Try again.") from error


def _changed(job_id: JobId) -> Conflict:
    return Conflict(f"Job {job_id} has just changed.", f"See `helio show {job_id}`.")
