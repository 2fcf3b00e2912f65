"""Permissions: who may see and change jobs, admin checks, and writing as the caller."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from heliostat.errors import Forbidden, NotFound
from heliostat.models import Caller, Job, JobId, User
from heliostat.services.context import Context
from heliostat.store import accounts
from heliostat.store import jobs as stored
from heliostat.store.database import Transaction

T = TypeVar("T")


class OwnedJob(Protocol):
    """A job, or a record with its owner and project."""

    @property
    def id(self) -> JobId: ...
    @property
    def user(self) -> str: ...
    @property
    def project(self) -> str: ...


def may_inspect(user: User, job: OwnedJob) -> bool:
    """The user's own jobs, those of projects that the user manages, and all for admins."""
    return job.user == user.name or user.may_manage(job.project)


def may_see_env_values(user: User, job: Job) -> bool:
    """Only the owner: values may be secrets. Others who may inspect the job see the names only."""
    return job.user == user.name


def require_inspectable_job(context: Context, caller: Caller, job_id: JobId) -> Job:
    """Raises NotFound or Forbidden."""
    with context.store.read() as conn:
        job = stored.get_job(conn, job_id)
    if job is None:
        raise NotFound(f"There is no job {job_id}.", "`helio ps --all` lists your jobs.")
    require_inspectable(caller, job)
    return job


def require_inspectable(caller: Caller, job: OwnedJob) -> None:
    if not may_inspect(caller.user, job):
        raise Forbidden(
            f"Job {job.id} belongs to another user.", f"Ask {job.user}, or a manager of project {job.project}."
        )


def require_admin(user: User) -> None:
    if not user.is_admin:
        raise Forbidden("Only an admin may do this.", "Ask an admin of this cluster.")


def write_as_caller(context: Context, caller: Caller, change: Callable[[Transaction, User], T]) -> T:
    """Write with the caller's current account from the database. Raises Forbidden if it is deactivated."""
    result = context.store.write(lambda tx: change(tx, _active_user(tx, caller)))
    context.authenticator.clear_caches()
    return result


def _active_user(tx: Transaction, caller: Caller) -> User:
    user = accounts.find_user(tx.conn, caller.user.name)
    if user is None or not user.active:
        raise Forbidden(f"The account {caller.user.name} is deactivated.", "An admin can activate it again.")
    return user
