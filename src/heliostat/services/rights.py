"""Who may see and touch which job."""

from collections.abc import Collection

from sqlalchemy import Connection

from heliostat.errors import Forbidden, NotFound
from heliostat.models import Caller, Job, JobId, User
from heliostat.services.context import Context
from heliostat.store import jobs as stored


def may_inspect(user: User, job: Job) -> bool:
    """One's own jobs, those of a project one manages, and for admins all."""
    return job.user == user.name or user.manages(job.project)


def may_see_values(user: User, job: Job) -> bool:
    """Of environment variables: they may hold secrets, so who else may inspect the job sees their names only."""
    return job.user == user.name


def inspectable_job(context: Context, caller: Caller, job_id: JobId) -> Job:
    """The job, or an error that says why not."""
    with context.store.read() as conn:
        job = stored.get_job(conn, job_id)
    if job is None:
        raise NotFound(f"There is no job {job_id}.", "`helio ps --all` lists your jobs.")
    check_inspectable(caller, job)
    return job


def listed_jobs(conn: Connection, ids: Collection[JobId]) -> dict[JobId, Job]:
    """Many jobs at once, without their specs: a thousand scripts would be a gigabyte."""
    wanted = list(ids)
    if len(wanted) < 10:
        return stored.get_jobs(conn, wanted)
    found: dict[JobId, Job] = {}
    for start in range(0, len(wanted), _MANY):
        part = stored.JobFilter(ids=wanted[start : start + _MANY])
        found |= {job.id: job for job in stored.list_jobs(conn, part, _MANY)}
    return found


_MANY = 500


def check_inspectable(caller: Caller, job: Job) -> None:
    if not may_inspect(caller.user, job):
        raise Forbidden(
            f"Job {job.id} belongs to someone else.", f"Ask {job.user}, or a manager of project {job.project}."
        )


def require_admin(user: User) -> None:
    if not user.is_admin:
        raise Forbidden("Only an admin may do this.", "Ask an admin of this Heliostat.")
