"""More time for a job."""

from heliostat.errors import Conflict, Forbidden, Invalid, invalid_field
from heliostat.models import ACTIVE, Attempt, Caller, Job, JobId
from heliostat.models.quantities import parse_duration
from heliostat.services.context import Context
from heliostat.services.programs import programs
from heliostat.services.rights import inspectable_job
from heliostat.store import jobs as stored
from heliostat.store import moves, people
from heliostat.store.database import Transaction


def extend_job(context: Context, caller: Caller, job_id: JobId, seconds: int) -> Job:
    """So much longer than its limit says now. Sessions by their owner; batch jobs only by who manages the project:
    others planned with the limit they were submitted with."""
    job = inspectable_job(context, caller, job_id)
    if job.kind != "session" and not caller.user.manages(job.project):
        hint = f"Ask a manager of project {job.project} or an admin."
        raise Forbidden("Only sessions can be extended by their owners: others planned with this limit.", hint)
    limit = _new_limit(context, job, seconds)
    if job.state in ACTIVE or job.handed_over:
        _tell_engine(context, job, limit)

    def change(tx: Transaction) -> Job:
        found = stored.get_job(tx.conn, job_id)
        if found is None or found.is_over or found.attempt != job.attempt or found.time_limit_seconds is None:
            raise _changed(job_id)
        longer = max(limit, found.time_limit_seconds)
        moves.set_job(tx, job_id, {"time_limit_seconds": longer})
        moves.note_job(tx, found, "limit_changed", f"its time limit is now {longer} s", context.now())
        people.add_audit(tx, caller, "job.extend", f"job {job_id}", {"time_limit": longer}, context.now())
        return stored.get_job(tx.conn, job_id) or found

    return context.store.write(change)


def seconds_from(text: str) -> int:
    """`2h`, `30m`… Raises Invalid."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise invalid_field("time", str(error)) from None


def _new_limit(context: Context, job: Job, seconds: int) -> int:
    if seconds < 1:
        raise invalid_field("time", "must be at least a second")
    if job.is_over or job.stop_requested:
        raise Conflict(f"Job {job.id} is {job.state}; its time is over.", f"See `helio show {job.id}`.")
    if job.time_limit_seconds is None:
        raise Conflict(f"Job {job.id} has no time limit.", "It needs no more time.")
    limit, most = job.time_limit_seconds + seconds, context.settings.max_time_limit_seconds
    if limit > most:
        said = f"must be at most {max(0, most - job.time_limit_seconds)} seconds more"
        raise Invalid(f"The longest time limit here is {most} seconds.", "Ask for less.", fields={"time": said})
    return limit


def _tell_engine(context: Context, job: Job, limit: int) -> None:
    try:
        programs(context).extend(Attempt(job.attempt_id, job, job.node or "", job.devices, job.places), limit)
    except OSError as error:
        raise Conflict(f"Job {job.id} cannot be extended: {error.strerror}.", "Try again.") from error


def _changed(job_id: JobId) -> Conflict:
    return Conflict(f"Job {job_id} has just changed.", f"See `helio show {job_id}`.")
