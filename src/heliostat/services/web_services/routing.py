"""Where the proxy finds the replicas of a service, and who may go there."""

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
    """Who has an account here."""

    def __contains__(self, name: object) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class ServiceRoutes:
    """The replicas that take requests now, and who may use them."""

    service: str
    owner: str
    allowed_users: Container[str]
    routes: tuple[ProxyRoute, ...]
    problem: str = ""  # why there may be none


def find_service_routes(context: Context, target: ProxyTarget) -> ServiceRoutes:
    """Raises NotFound. Says nothing about who asks: `people` does."""
    with context.store.read() as conn:
        service = stored.find_service(conn, target.service)
        if service is None:
            raise service_not_found(target.service)
        may = _people(conn, service)
        replicas = {
            one.job_id: one for one in stored.list_live_replicas(conn, service.id) if one.draining_at is None
        }
        jobs = stored_jobs.get_jobs(conn, list(replicas))
    up = [job for job in jobs.values() if job.state is JobState.RUNNING]
    healthy = [job for job in up if replicas[job.id].is_healthy(job.attempt)]
    ways = [_way(context, service, target, may, job) for job in healthy]
    found = tuple(way for way in ways if way is not None)
    return ServiceRoutes(service.name, service.user, may, found, service.problem or "")


def require_service_access(context: Context, user: User, name: str, *, is_browser: bool = True) -> Service:
    """The service, if this person may use it. Those one may not see do not exist."""
    with context.store.read() as conn:
        service = stored.find_service(conn, name)
    if service is None or not may_see_service(user, service):
        raise service_not_found(name)
    if not may_use_service(user, service):  # who manages the project sees it, and would act as nobody
        raise Forbidden(f"Service {name} is {service.user}'s.", f"Ask {service.user} to make it visible.")
    if is_browser:
        require_separate_origin(context, user.name, service.user)
    return service


def require_separate_origin(context: Context, user: str, owner: str) -> None:
    """On one origin for all, a page of somebody else could use what the same browser has open there."""
    if user == owner or context.public_urls.has_host_per_target:
        return
    raise Forbidden(
        "Services of other people open in a browser only where each has a host name of its own.",
        "A program may use it: helio service key. An admin can set proxy_url to https://*.DOMAIN.",
    )


def may_use_service(user: User, service: Service) -> bool:
    if service.user == user.name or service.visibility is ServiceVisibility.PUBLIC:
        return True
    return service.visibility is ServiceVisibility.PROJECT and user.is_member_of(service.project)


def may_see_service(user: User, service: Service) -> bool:
    """Who may use it, and who manages its project."""
    return may_use_service(user, service) or may_manage_service(user, service)


def may_manage_service(user: User, service: Service) -> bool:
    """Who may look inside: what it runs and why it fails is not for all who use it."""
    return service.user == user.name or user.may_manage(service.project)


def create_service_entry_code(
    context: Context, user: User, target: ProxyTarget, nonce_digest: str, login_id: int
) -> str:
    """Takes a browser of this person over to the proxy, once."""
    require_service_access(context, user, target.service)
    return context.identities.proxy_grants.create_code(user.name, target, nonce_digest, login_id)


def service_not_found(name: str) -> NotFound:
    return NotFound(f"There is no service {name[:64]!a}.", "`helio service list` lists those you may use.")


def _people(conn: Connection, service: Service) -> Container[str]:
    match service.visibility:
        case ServiceVisibility.PUBLIC:
            return AnyUser()
        case ServiceVisibility.PROJECT:
            project = accounts.find_project(conn, service.project)
            return frozenset({service.user, *(name for name, _ in (project.members if project else ()))})
    return frozenset({service.user})


def _way(
    context: Context, service: Service, target: ProxyTarget, may: Container[str], job: Job
) -> ProxyRoute | None:
    attempt = Attempt(job.attempt_id, job, job.node or "", job.devices, job.places)
    port = require_program_engine(context).session_port(attempt)
    if port is None:
        return None
    return ProxyRoute(target, attempt, may, port, authorization_header=f"Bearer {service.secret}")
