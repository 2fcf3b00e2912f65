"""Job control: cancel, hold, release, requeue, extend, record a checkpoint."""

from collections.abc import Callable, Sequence
from typing import Any

from heliostat.errors import Conflict, Forbidden, Invalid, NotFound, invalid_field
from heliostat.models import ACTIVE_STATES, Attempt, Caller, Job, JobId, JobState
from heliostat.models.quantities import parse_duration
from heliostat.scheduling.limit_extension import find_delayed_bookings
from heliostat.services.context import Context, require_program_engine
from heliostat.services.environments.lifecycle import check_may_stop_build
from heliostat.services.idle_policy import record_early_return
from heliostat.services.permissions import require_inspectable, require_inspectable_job
from heliostat.store import accounts, job_writes
from heliostat.store import jobs as stored
from heliostat.store.database import Transaction
from heliostat.store.jobs import get_jobs_without_spec


def cancel_job(context: Context, caller: Caller, job_id: JobId, *, force: bool = False) -> Job:
    """A waiting job ends at once. A running one gets TERM, its grace period and KILL; with `force`, KILL at once.
    Does nothing if the job has ended."""
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
    """The named jobs and those of the array, in one transaction. Returns the ids of jobs that had not ended."""
    stop_kind = "kill" if force else "cancel"
    all_ids = list(job_ids) + (list_array_job_ids(context, array_id) if array_id is not None else [])

    def change(tx: Transaction) -> list[JobId]:
        jobs = get_jobs_without_spec(tx.conn, all_ids)
        for job_id in all_ids:
            require_inspectable(caller, _require_found(jobs.get(job_id), job_id))
        unfinished = [job for job in jobs.values() if not job.is_terminal]
        for job in unfinished:
            check_may_stop_build(tx, caller, job)
        _stop_jobs(context, caller, tx, unfinished, stop_kind)
        target = f"array {array_id}" if array_id is not None else f"{len(all_ids)} jobs"
        accounts.add_audit_entry(tx, caller, f"job.{stop_kind}", target, {"jobs": len(unfinished)}, context.now())
        return [job.id for job in unfinished]

    return context.store.write(change)


def cancel_in_transaction(context: Context, caller: Caller, tx: Transaction, job: Job) -> None:
    """Part of a larger change; its caller has checked the permissions."""
    _cancel(context, caller, tx, job)


def hold_job(context: Context, caller: Caller, job_id: JobId) -> Job:
    """Keep a waiting job from starting."""
    return _change(context, caller, job_id, "job.hold", _hold)


def release_job(context: Context, caller: Caller, job_id: JobId) -> Job:
    """Put a held job back into the queue."""
    return _change(context, caller, job_id, "job.release", _release)


def requeue_job(context: Context, caller: Caller, job_id: JobId) -> Job:
    """Stop the running attempt and put the job back into the queue."""
    return _change(context, caller, job_id, "job.requeue", _requeue)


def record_checkpoint(context: Context, caller: Caller, job_id: JobId) -> Job:
    """Record that the job has saved its work. For its owner or an admin."""
    require_inspectable_job(context, caller, job_id)

    def change(tx: Transaction) -> Job:
        _note_checkpoint(context, caller, tx, _require_found(stored.get_job(tx.conn, job_id), job_id))
        return _require_found(stored.get_job(tx.conn, job_id), job_id)

    return context.store.write(change)


def list_array_job_ids(context: Context, array_id: int) -> list[JobId]:
    with context.store.read() as conn:
        current = stored.list_jobs(conn, stored.JobFilter(array_id=array_id), limit=100_000)
    if not current:
        raise NotFound(f"There is no array {array_id}.", "`helio ps --all` shows the arrays of your jobs.")
    return [job.id for job in reversed(current)]


_Step = Callable[[Context, Caller, Transaction, Job], None]


def _change(context: Context, caller: Caller, job_id: JobId, action: str, step: _Step) -> Job:
    require_inspectable_job(context, caller, job_id)

    def change(tx: Transaction) -> Job:
        job = _require_found(stored.get_job(tx.conn, job_id), job_id)
        check_may_stop_build(tx, caller, job)
        step(context, caller, tx, job)
        accounts.add_audit_entry(tx, caller, action, f"job {job_id}", {}, context.now())
        return _require_found(stored.get_job(tx.conn, job_id), job_id)

    return context.store.write(change)


def _cancel(context: Context, caller: Caller, tx: Transaction, job: Job) -> None:
    _stop_jobs(context, caller, tx, [job], "cancel")


def _kill(context: Context, caller: Caller, tx: Transaction, job: Job) -> None:
    _stop_jobs(context, caller, tx, [job], "kill")


def _stop_jobs(context: Context, caller: Caller, tx: Transaction, jobs: Sequence[Job], stop_kind: str) -> None:
    now, reason = context.now(), f"cancelled by {caller.user.name}"
    unfinished_jobs = [
        job for job in jobs if not job.is_terminal and job.stop_requested not in ("kill", stop_kind)
    ]
    for job in unfinished_jobs:
        if job.state in ACTIVE_STATES:
            if job.stop_requested is None:
                record_early_return(context, caller, tx, job)
            _request_stop(context, tx, job, stop_kind, reason)
    waiting = [job for job in unfinished_jobs if job.state not in ACTIVE_STATES]
    job_writes.apply_transitions(
        tx,
        [job_writes.cancellation_transition(reason, job.id, now, job.queue_wait_seconds(now)) for job in waiting],
    )


def _hold(context: Context, caller: Caller, tx: Transaction, job: Job) -> None:
    if job.state is JobState.HELD:
        return
    if job.state is not JobState.PENDING:
        hint = f"`helio cancel {job.id}` ends it, `helio requeue {job.id}` puts it back into the queue."
        raise Conflict(
            f"Job {job.id} is {job.state}; only a waiting job can be held.",
            f"`helio rerun {job.id}` submits it again." if job.is_terminal else hint,
        )
    now, reason = context.now(), f"held by {caller.user.name}"
    values = {"reason": reason, "waited_seconds": job.queue_wait_seconds(now), "waits_since": None}
    job_writes.apply_transitions(
        tx, [job_writes.JobTransition(job.id, JobState.HELD, "held", now, None, values, reason)]
    )


def _release(context: Context, caller: Caller, tx: Transaction, job: Job) -> None:
    if job.state is JobState.PENDING:
        return
    if job.state is not JobState.HELD:
        raise Conflict(f"Job {job.id} is {job.state}, not held.", "Only held jobs can be released.")
    values = {"reason": None, "waits_since": context.now()}  # held time does not count as waiting
    job_writes.apply_transitions(
        tx, [job_writes.JobTransition(job.id, JobState.PENDING, "released", context.now(), None, values)]
    )


def _requeue(context: Context, caller: Caller, tx: Transaction, job: Job) -> None:
    if job.is_terminal:
        raise Conflict(
            f"Job {job.id} is {job.state}; a job that has ended cannot change.",
            f"Submit it again: helio rerun {job.id}",
        )
    if job.state not in ACTIVE_STATES or job.stop_requested:
        return
    _request_stop(context, tx, job, "requeue", f"requeued by {caller.user.name}")


def _note_checkpoint(context: Context, caller: Caller, tx: Transaction, job: Job) -> None:
    if job.user != caller.user.name and not caller.user.is_admin:
        raise Forbidden(
            f"Only {job.user} or an admin can record a checkpoint of job {job.id}.",
            "The job itself can call `helio checkpointed`.",
        )
    if job.state is not JobState.RUNNING:
        raise Conflict(
            f"Job {job.id} is {job.state}; only a running job can record a checkpoint.",
            "Call `helio checkpointed` from within the job.",
        )
    now = context.now()
    job_writes.update_job(tx, job.id, {"checkpointed_at": now})
    job_writes.add_job_event(tx, job, "checkpointed", None, now)


def _request_stop(context: Context, tx: Transaction, job: Job, what: str, reason: str) -> None:
    values: dict[str, Any] = {"stop_requested": what, "reason": reason}
    job_writes.update_job(tx, job.id, values)
    job_writes.add_job_event(tx, job, f"{what}_requested", reason, context.now())


def _require_found(job: Job | None, job_id: JobId) -> Job:
    if job is None:
        raise NotFound(f"There is no job {job_id}.", "`helio ps --all` lists your jobs.")
    return job


def extend_job(context: Context, caller: Caller, job_id: JobId, seconds: int) -> Job:
    """Add `seconds` to the time limit. Owners may extend sessions. Other jobs need a manager of the project or an
    admin, because other jobs were planned with the limit. Only admins may delay a job that has a booking."""
    job = require_inspectable_job(context, caller, job_id)
    if job.kind != "session" and not caller.user.may_manage(job.project):
        hint = f"Ask a manager of project {job.project} or an admin."
        raise Forbidden("Owners can extend only sessions: the schedule of other jobs relies on this limit.", hint)
    limit = _new_limit(context, job, seconds)
    if job.state in ACTIVE_STATES and not caller.user.is_admin:
        _require_no_delayed_booking(context, job, limit)
    if job.state in ACTIVE_STATES or job.dispatched:
        _extend_in_engine(context, job, limit)

    def change(tx: Transaction) -> Job:
        current = stored.get_job(tx.conn, job_id)
        if (
            current is None
            or current.is_terminal
            or current.attempt != job.attempt
            or current.time_limit_seconds is None
        ):
            raise _changed_error(job_id)
        new_limit = max(limit, current.time_limit_seconds)
        job_writes.update_job(tx, job_id, {"time_limit_seconds": new_limit})
        job_writes.add_job_event(tx, current, "limit_changed", f"time limit is now {new_limit} s", context.now())
        accounts.add_audit_entry(
            tx, caller, "job.extend", f"job {job_id}", {"time_limit": new_limit}, context.now()
        )
        return stored.get_job(tx.conn, job_id) or current

    return context.store.write(change)


def parse_seconds(text: str) -> int:
    """`2h`, `30m`… Raises Invalid."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise invalid_field("time", str(error)) from None


def _new_limit(context: Context, job: Job, seconds: int) -> int:
    if seconds < 1:
        raise invalid_field("time", "must be at least 1 second")
    if job.is_terminal or job.stop_requested:
        state = job.state if job.is_terminal else "being stopped"
        raise Conflict(f"Job {job.id} is {state} and cannot be extended.", f"See `helio show {job.id}`.")
    if job.time_limit_seconds is None:
        raise Conflict(f"Job {job.id} has no time limit.", "There is nothing to extend.")
    limit, maximum = job.time_limit_seconds + seconds, context.settings.queue.max_time_limit_seconds
    if limit > maximum:
        problem = f"must be at most {max(0, maximum - job.time_limit_seconds)} seconds more"
        raise Invalid(f"The maximum time limit is {maximum} seconds.", "Request less.", fields={"time": problem})
    return limit


def _require_no_delayed_booking(context: Context, job: Job, limit: int) -> None:
    """Otherwise a session could start beside a booking with a short limit and then keep the booked resources."""
    if context.engine.capabilities.has_own_queue:
        return
    delayed = find_delayed_bookings(context.controller.latest_queue_state(), job.id, limit, context.now())
    if delayed:
        at = delayed[0].starts_at.strftime("%Y-%m-%d %H:%M UTC")
        raise Conflict(
            f"Job {delayed[0].job_id} of another user is booked to start by {at} and would start later.",
            "Save your work and start a new session later, or ask an admin to extend this one.",
        )


def _extend_in_engine(context: Context, job: Job, limit: int) -> None:
    try:
        require_program_engine(context).extend_time_limit(
            Attempt(job.attempt_id, job, job.node or "", job.devices, job.places), limit
        )
    except OSError as error:
        raise Conflict(f"Job {job.id} cannot be extended: {error.strerror}.", "Try again.") from error


def _changed_error(job_id: JobId) -> Conflict:
    return Conflict(f"The state of job {job_id} has just changed.", f"See `helio show {job_id}`.")
