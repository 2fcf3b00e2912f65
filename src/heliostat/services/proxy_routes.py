"""Proxy routes to servers inside jobs: the allowed users, the port, and entry codes for browsers."""

from collections.abc import Container
from dataclasses import dataclass

from heliostat.engines.contract import Endpoint
from heliostat.errors import Conflict, Forbidden, NotFound, invalid_field
from heliostat.models import Attempt, Caller, Job, JobState, User
from heliostat.models.sessions import JUPYTER_APPS, MAX_PORT, ProxyTarget
from heliostat.services.context import Context, require_program_engine
from heliostat.store import jobs as stored
from heliostat.store.sessions import find_session, list_session_guests

_MIN_PORT = 1024  # lower ports belong to system services


@dataclass(frozen=True, slots=True)
class ProxyRoute:
    """From the proxy to a server inside a running job."""

    target: ProxyTarget
    attempt: Attempt
    allowed_users: Container[str]
    port: int
    keeps_path_prefix: bool = False  # the server expects the path prefix of the proxy
    authorization_header: str | None = None  # that the server requires


def find_route(context: Context, target: ProxyTarget) -> ProxyRoute:
    """Raises NotFound or Conflict. Does not check the user: `allowed_users` does."""
    job = _job(context, target)
    if job.state is not JobState.RUNNING:
        raise Conflict(f"Job {job.id} is {job.state}.", f"See `helio show {job.id}`.", code=f"job_{job.state}")
    if target.port is None:
        return _session_route(context, job, target)
    return ProxyRoute(target, _attempt(job), allowed_users_of(context, job, target), target.port)


def _session_route(context: Context, job: Job, target: ProxyTarget) -> ProxyRoute:
    with context.store.read() as conn:
        session = find_session(conn, job.id)
    if session is None:
        raise NotFound(f"Job {job.id} is not a session.", f"Open one of its ports: helio port {job.id} PORT.")
    port = require_program_engine(context).session_port(_attempt(job))
    if port is None:
        raise Conflict("The session is starting.", "It opens in a moment.", code="session_starting")
    is_jupyter = session.app in JUPYTER_APPS
    header = f"{'token' if is_jupyter else 'Bearer'} {session.secret}"
    users = allowed_users_of(context, job, target)
    return ProxyRoute(
        target, _attempt(job), users, port, keeps_path_prefix=is_jupyter, authorization_header=header
    )


def route_endpoint(context: Context, route: ProxyRoute) -> Endpoint:
    """Raises Conflict if jobs of the engine have no ports."""
    return require_program_engine(context).endpoint(route.attempt, route.port)


def require_target_access(context: Context, user: User, target: ProxyTarget) -> Job:
    """The job. Raises Forbidden unless the user may use the target. Managers and admins may not: they would act
    as the job's owner."""
    job = _job(context, target)
    if user.name not in allowed_users_of(context, job, target):
        raise Forbidden(f"Job {job.id} belongs to {job.user}.", f"Ask {job.user}.")
    return job


def allowed_users_of(context: Context, job: Job, target: ProxyTarget) -> frozenset[str]:
    """Its owner, and the users a session is shared with, if each session has its own origin."""
    if target.port is not None or not context.public_urls.has_host_per_target:
        return frozenset({job.user})
    with context.store.read() as conn:
        return frozenset({job.user, *list_session_guests(conn, job.id)})


def open_port(context: Context, caller: Caller, job_id: int, port: int) -> ProxyTarget:
    """A port of the caller's own running job. Raises Conflict if no process listens there."""
    if not _MIN_PORT <= port <= MAX_PORT:
        raise invalid_field("port", f"must be a number from {_MIN_PORT} to {MAX_PORT}")
    target = ProxyTarget(job_id, port)
    require_target_access(context, caller.user, target)
    route_endpoint(context, find_route(context, target)).check()
    return target


def create_program_key(context: Context, caller: Caller, target: ProxyTarget) -> tuple[str, str]:
    """A secret for access by a program of the caller, and when it expires (ISO 8601)."""
    require_target_access(context, caller.user, target)
    secret, until = context.authenticator.proxy_grants.create_program_grant(caller.user.name, target)
    return secret, until.isoformat()


def create_entry_code(context: Context, user: User, target: ProxyTarget, nonce_digest: str, login_id: int) -> str:
    """A code that logs the user's browser in at the proxy, once."""
    require_target_access(context, user, target)
    return context.authenticator.proxy_grants.create_code(user.name, target, nonce_digest, login_id)


def _job(context: Context, target: ProxyTarget) -> Job:
    with context.store.read() as conn:
        job = stored.get_job(conn, target.job_id)
    if job is None:
        raise NotFound(f"There is no job {target.job_id}.", "`helio ps --all` lists your jobs.")
    return job


def _attempt(job: Job) -> Attempt:
    return Attempt(job.attempt_id, job, job.node or "", job.devices, job.places)
