"""What the proxy leads to: whose it is, who may go there, and where it listens, proven to be the job's."""

from collections.abc import Container
from dataclasses import dataclass

from heliostat.engines.contract import Endpoint
from heliostat.errors import Conflict, Forbidden, NotFound, invalid_field
from heliostat.models import Attempt, Caller, Job, JobState, User
from heliostat.models.sessions import JUPYTER_APPS, MAX_PORT, ProxyTarget
from heliostat.services.context import Context, require_program_engine
from heliostat.store import jobs as stored
from heliostat.store.sessions import find_session, list_session_guests

_LEAST_PORT = 1024  # below it are the services of the system


@dataclass(frozen=True, slots=True)
class ProxyRoute:
    """From the proxy to a server inside a running job."""

    target: ProxyTarget
    attempt: Attempt
    allowed_users: Container[str]  # who may use it
    port: int
    keeps_path_prefix: bool = False  # the server inside knows where it stands
    authorization_header: str | None = None  # what it wants to see


def find_route(context: Context, target: ProxyTarget) -> ProxyRoute:
    """Raises NotFound or Conflict. Says nothing about who asks: `people` does."""
    job = _job(context, target)
    if job.state is not JobState.RUNNING:
        raise Conflict(f"Job {job.id} is {job.state}.", f"See `helio show {job.id}`.", code=f"job_{job.state}")
    if target.port is None:
        return _way_to_session(context, job, target)
    return ProxyRoute(target, _attempt(job), allowed_users_of(context, job, target), target.port)


def _way_to_session(context: Context, job: Job, target: ProxyTarget) -> ProxyRoute:
    with context.store.read() as conn:
        session = find_session(conn, job.id)
    if session is None:
        raise NotFound(f"Job {job.id} is no session.", "Ask for one of its ports: helio port JOB PORT.")
    port = require_program_engine(context).session_port(_attempt(job))
    if port is None:
        raise Conflict("The session is starting.", "It opens in a moment.", code="session_starting")
    is_jupyter = session.app in JUPYTER_APPS
    shown = f"{'token' if is_jupyter else 'Bearer'} {session.secret}"
    people = allowed_users_of(context, job, target)
    return ProxyRoute(
        target, _attempt(job), people, port, keeps_path_prefix=is_jupyter, authorization_header=shown
    )


def route_endpoint(context: Context, way: ProxyRoute) -> Endpoint:
    """Raises Conflict where jobs have no ports."""
    return require_program_engine(context).endpoint(way.attempt, way.port)


def require_target_access(context: Context, user: User, target: ProxyTarget) -> Job:
    """The job, if this person may use the target. Not for managers and admins: they would act as somebody else."""
    job = _job(context, target)
    if user.name not in allowed_users_of(context, job, target):
        raise Forbidden(f"Job {job.id} is {job.user}'s.", f"Ask {job.user}.")
    return job


def allowed_users_of(context: Context, job: Job, target: ProxyTarget) -> frozenset[str]:
    """Its owner; and whom a session is shared with, where it has an origin of its own."""
    if target.port is not None or not context.public_urls.has_host_per_target:
        return frozenset({job.user})
    with context.store.read() as conn:
        return frozenset({job.user, *list_session_guests(conn, job.id)})


def open_port(context: Context, caller: Caller, job_id: int, port: int) -> ProxyTarget:
    """A port of a running job of one's own, on which something listens."""
    if not _LEAST_PORT <= port <= MAX_PORT:
        raise invalid_field("port", f"must be a number from {_LEAST_PORT} to {MAX_PORT}")
    target = ProxyTarget(job_id, port)
    require_target_access(context, caller.user, target)
    route_endpoint(context, find_route(context, target)).check()
    return target


def create_program_key(context: Context, caller: Caller, target: ProxyTarget) -> tuple[str, str]:
    """A secret with which a program of the caller uses the target, and until when (ISO 8601)."""
    require_target_access(context, caller.user, target)
    secret, until = context.identities.proxy_grants.create_program_grant(caller.user.name, target)
    return secret, until.isoformat()


def create_entry_code(context: Context, user: User, target: ProxyTarget, nonce_digest: str, login_id: int) -> str:
    """Takes a browser of this person over to the proxy, once."""
    require_target_access(context, user, target)
    return context.identities.proxy_grants.create_code(user.name, target, nonce_digest, login_id)


def _job(context: Context, target: ProxyTarget) -> Job:
    with context.store.read() as conn:
        job = stored.get_job(conn, target.job_id)
    if job is None:
        raise NotFound(f"There is no job {target.job_id}.", "`helio ps --all` lists your jobs.")
    return job


def _attempt(job: Job) -> Attempt:
    return Attempt(job.attempt_id, job, job.node or "", job.devices, job.places)
