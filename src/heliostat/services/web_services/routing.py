"""Routing of proxy requests to healthy replicas of a service, and access checks."""

from collections.abc import Container
from dataclasses import dataclass

from sqlalchemy import Connection

from heliostat.errors import Forbidden, NotFound
from heliostat.models import Attempt, Job, JobState, User
from heliostat.models.services import Service, ServiceVisibility
from heliostat.models.sessions import ProxyTarget
from heliostat.services.context import Context, require_program_engine
from heliostat.services.proxy_routes import ProxyRoute
from heliostat.store import accounts
from heliostat.store import jobs as stored_jobs
from heliostat.store import services as stored


@dataclass(frozen=True, slots=True)
class AnyUser:
    """Contains every user with an account."""

    def __contains__(self, name: object) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class ServiceRoutes:
    """The replicas that accept requests now, and the allowed users."""

    service: str
    owner: str
    allowed_users: Container[str]
    routes: tuple[ProxyRoute, ...]
    problem: str = ""  # a possible reason for no routes


def find_service_routes(context: Context, target: ProxyTarget) -> ServiceRoutes:
    """Raises NotFound. Does not check the user: `allowed_users` does."""
    with context.store.read() as conn:
        service = stored.find_service(conn, target.service)
        if service is None:
            raise service_not_found(target.service)
        users = _allowed_users(conn, service)
        live = stored.list_live_replicas(conn, service.id)
        replicas = {replica.job_id: replica for replica in live if replica.draining_at is None}
        jobs = stored_jobs.get_jobs(conn, list(replicas))
    running = [job for job in jobs.values() if job.state is JobState.RUNNING]
    healthy = [job for job in running if replicas[job.id].is_healthy(job.attempt)]
    candidates = [_route(context, service, target, users, job) for job in healthy]
    routes = tuple(route for route in candidates if route is not None)
    return ServiceRoutes(service.name, service.user, users, routes, service.problem or "")


def require_service_access(context: Context, user: User, name: str, *, is_browser: bool = True) -> Service:
    """Raises NotFound if the user may not see the service, Forbidden if they may not use it."""
    with context.store.read() as conn:
        service = stored.find_service(conn, name)
    if service is None or not may_see_service(user, service):
        raise service_not_found(name)
    if not may_use_service(user, service):  # managers of the project see it, but may not use it
        raise Forbidden(f"Service {name} belongs to {service.user}.", f"Ask {service.user} to make it visible.")
    if is_browser:
        require_separate_origin(context, user.name, service.user)
    return service


def require_separate_origin(context: Context, user: str, owner: str) -> None:
    """With one origin for all, a page of another user's service could access other pages open in the browser."""
    if user == owner or context.public_urls.has_host_per_target:
        return
    raise Forbidden(
        "Services of other users open in a browser only if each service has its own host name.",
        "Use it from a program: helio service key. An admin can set proxy_url to https://*.DOMAIN.",
    )


def may_use_service(user: User, service: Service) -> bool:
    if service.user == user.name or service.visibility is ServiceVisibility.PUBLIC:
        return True
    return service.visibility is ServiceVisibility.PROJECT and user.is_member_of(service.project)


def may_see_service(user: User, service: Service) -> bool:
    """Users of the service, and managers of its project."""
    return may_use_service(user, service) or may_manage_service(user, service)


def may_manage_service(user: User, service: Service) -> bool:
    """Its owner and managers of its project. Only they see what it runs and why it fails."""
    return service.user == user.name or user.may_manage(service.project)


def create_service_entry_code(
    context: Context, user: User, target: ProxyTarget, nonce_digest: str, login_id: int
) -> str:
    """A code that logs the user's browser in at the proxy, once."""
    require_service_access(context, user, target.service)
    return context.authenticator.proxy_grants.create_code(user.name, target, nonce_digest, login_id)


def service_not_found(name: str) -> NotFound:
    return NotFound(f"There is no service {name[:64]!a}.", "`helio service list` lists those you may use.")


def _allowed_users(conn: Connection, service: Service) -> Container[str]:
    match service.visibility:
        case ServiceVisibility.PUBLIC:
            return AnyUser()
        case ServiceVisibility.PROJECT:
            project = accounts.find_project(conn, service.project)
            return frozenset({service.user, *(name for name, _ in (project.members if project else ()))})
    return frozenset({service.user})


def _route(
    context: Context, service: Service, target: ProxyTarget, users: Container[str], job: Job
) -> ProxyRoute | None:
    attempt = Attempt(job.attempt_id, job, job.node or "", job.devices, job.places)
    port = require_program_engine(context).session_port(attempt)
    if port is None:
        return None
    return ProxyRoute(target, attempt, users, port, authorization_header=f"Bearer {service.secret}")
