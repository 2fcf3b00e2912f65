"""What the proxy leads to: whose it is, who may go there, and where it listens, proven to be the job's."""

from collections.abc import Container
from dataclasses import dataclass

from heliostat.engines.contract import Endpoint
from heliostat.errors import Conflict, Forbidden, NotFound, invalid_field
from heliostat.models import Attempt, Caller, Job, JobState, User
from heliostat.models.sessions import JUPYTER_APPS, MOST_PORT, Target
from heliostat.services.context import Context, programs
from heliostat.store import jobs as stored
from heliostat.store.sessions import find_session, shared_with

_LEAST_PORT = 1024  # below it are the services of the system


@dataclass(frozen=True, slots=True)
class Way:
    """From the proxy to a server inside a running job."""

    target: Target
    attempt: Attempt
    people: Container[str]  # who may use it
    port: int
    keeps_prefix: bool = False  # the server inside knows where it stands
    authorization: str | None = None  # what it wants to see


def find_way(context: Context, target: Target) -> Way:
    """Raises NotFound or Conflict. Says nothing about who asks: `people` does."""
    job = _job(context, target)
    if job.state is not JobState.RUNNING:
        raise Conflict(f"Job {job.id} is {job.state}.", f"See `helio show {job.id}`.", code=f"job_{job.state}")
    if target.port is None:
        return _way_to_session(context, job, target)
    return Way(target, _attempt(job), people_of(context, job, target), target.port)


def _way_to_session(context: Context, job: Job, target: Target) -> Way:
    with context.store.read() as conn:
        session = find_session(conn, job.id)
    if session is None:
        raise NotFound(f"Job {job.id} is no session.", "Ask for one of its ports: helio port JOB PORT.")
    port = programs(context).session_port(_attempt(job))
    if port is None:
        raise Conflict("The session is starting.", "It opens in a moment.", code="session_starting")
    is_jupyter = session.app in JUPYTER_APPS
    shown = f"{'token' if is_jupyter else 'Bearer'} {session.secret}"
    people = people_of(context, job, target)
    return Way(target, _attempt(job), people, port, keeps_prefix=is_jupyter, authorization=shown)


def endpoint(context: Context, way: Way) -> Endpoint:
    """Raises Conflict where jobs have no ports."""
    return programs(context).endpoint(way.attempt, way.port)


def check_entry(context: Context, user: User, target: Target) -> Job:
    """The job, if this person may use the target. Not for managers and admins: they would act as somebody else."""
    job = _job(context, target)
    if user.name not in people_of(context, job, target):
        raise Forbidden(f"Job {job.id} is {job.user}'s.", f"Ask {job.user}.")
    return job


def people_of(context: Context, job: Job, target: Target) -> frozenset[str]:
    """Its owner; and whom a session is shared with, where it has an origin of its own."""
    if target.port is not None or not context.addresses.has_own_hosts:
        return frozenset({job.user})
    with context.store.read() as conn:
        return frozenset({job.user, *shared_with(conn, job.id)})


def open_port(context: Context, caller: Caller, job_id: int, port: int) -> Target:
    """A port of a running job of one's own, on which something listens."""
    if not _LEAST_PORT <= port <= MOST_PORT:
        raise invalid_field("port", f"must be a number from {_LEAST_PORT} to {MOST_PORT}")
    target = Target(job_id, port)
    check_entry(context, caller.user, target)
    endpoint(context, find_way(context, target)).check()
    return target


def program_key(context: Context, caller: Caller, target: Target) -> tuple[str, str]:
    """A secret with which a program of the caller uses the target, and until when (ISO 8601)."""
    check_entry(context, caller.user, target)
    secret, until = context.identities.grants.for_program(caller.user.name, target)
    return secret, until.isoformat()


def entry_code(context: Context, user: User, target: Target, nonce_digest: str, login_id: int) -> str:
    """Takes a browser of this person over to the proxy, once."""
    check_entry(context, user, target)
    return context.identities.grants.new_code(user.name, target, nonce_digest, login_id)


def _job(context: Context, target: Target) -> Job:
    with context.store.read() as conn:
        job = stored.get_job(conn, target.job_id)
    if job is None:
        raise NotFound(f"There is no job {target.job_id}.", "`helio ps --all` lists your jobs.")
    return job


def _attempt(job: Job) -> Attempt:
    return Attempt(job.attempt_id, job, job.node or "", job.devices, job.places)
