"""Where the proxy finds the replicas of a service, and who may go there."""

from collections.abc import Container
from dataclasses import dataclass

from sqlalchemy import Connection

from heliostat.errors import Forbidden, NotFound
from heliostat.models import Attempt, Job, JobState, User
from heliostat.models.services import Service, Visibility
from heliostat.models.sessions import Target
from heliostat.services.context import Context, programs
from heliostat.services.proxying import Way
from heliostat.store import jobs as stored_jobs
from heliostat.store import people
from heliostat.store import services as stored


@dataclass(frozen=True, slots=True)
class Everybody:
    """Who has an account here."""

    def __contains__(self, name: object) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Choices:
    """The replicas that take requests now, and who may use them."""

    service: str
    owner: str
    people: Container[str]
    ways: tuple[Way, ...]
    problem: str = ""  # why there may be none


def find_choices(context: Context, target: Target) -> Choices:
    """Raises NotFound. Says nothing about who asks: `people` does."""
    with context.store.read() as conn:
        service = stored.find_service(conn, target.service)
        if service is None:
            raise no_service(target.service)
        may = _people(conn, service)
        replicas = {one.job_id: one for one in stored.live_replicas(conn, service.id) if one.draining_at is None}
        jobs = stored_jobs.get_jobs(conn, list(replicas))
    up = [job for job in jobs.values() if job.state is JobState.RUNNING]
    healthy = [job for job in up if replicas[job.id].is_healthy(job.attempt)]
    ways = [_way(context, service, target, may, job) for job in healthy]
    found = tuple(way for way in ways if way is not None)
    return Choices(service.name, service.user, may, found, service.problem or "")


def check_service_entry(context: Context, user: User, name: str, *, is_browser: bool = True) -> Service:
    """The service, if this person may use it. Those one may not see do not exist."""
    with context.store.read() as conn:
        service = stored.find_service(conn, name)
    if service is None or not may_see(user, service):
        raise no_service(name)
    if not may_use(user, service):  # who manages the project sees it, and would act as nobody
        raise Forbidden(f"Service {name} is {service.user}'s.", f"Ask {service.user} to make it visible.")
    if is_browser:
        check_origin_of_others(context, user.name, service.user)
    return service


def check_origin_of_others(context: Context, user: str, owner: str) -> None:
    """On one origin for all, a page of somebody else could use what the same browser has open there."""
    if user == owner or context.addresses.has_own_hosts:
        return
    raise Forbidden(
        "Services of other people open in a browser only where each has a host name of its own.",
        "A program may use it: helio service key. An admin can set proxy_url to https://*.DOMAIN.",
    )


def may_use(user: User, service: Service) -> bool:
    if service.user == user.name or service.visibility is Visibility.PUBLIC:
        return True
    return service.visibility is Visibility.PROJECT and user.belongs_to(service.project)


def may_see(user: User, service: Service) -> bool:
    """Who may use it, and who manages its project."""
    return may_use(user, service) or may_manage(user, service)


def may_manage(user: User, service: Service) -> bool:
    """Who may look inside: what it runs and why it fails is not for all who use it."""
    return service.user == user.name or user.manages(service.project)


def service_code(context: Context, user: User, target: Target, nonce_digest: str, login_id: int) -> str:
    """Takes a browser of this person over to the proxy, once."""
    check_service_entry(context, user, target.service)
    return context.identities.grants.new_code(user.name, target, nonce_digest, login_id)


def no_service(name: str) -> NotFound:
    return NotFound(f"There is no service {name[:64]!a}.", "`helio service list` lists those you may use.")


def _people(conn: Connection, service: Service) -> Container[str]:
    match service.visibility:
        case Visibility.PUBLIC:
            return Everybody()
        case Visibility.PROJECT:
            project = people.find_project(conn, service.project)
            return frozenset({service.user, *(name for name, _ in (project.members if project else ()))})
    return frozenset({service.user})


def _way(context: Context, service: Service, target: Target, may: Container[str], job: Job) -> Way | None:
    attempt = Attempt(job.attempt_id, job, job.node or "", job.devices, job.places)
    port = programs(context).session_port(attempt)
    if port is None:
        return None
    return Way(target, attempt, may, port, authorization=f"Bearer {service.secret}")
