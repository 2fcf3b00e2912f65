"""What somebody wants of a service, checked and completed; and what is submitted for each of its replicas."""

from dataclasses import dataclass, field, replace

from heliostat.errors import invalid_field
from heliostat.models import Caller, JobRequest
from heliostat.models.services import NAME, NAME_RULE, HealthCheck, Service, Visibility
from heliostat.payloads.archive import SESSION_LAUNCHER, script_for
from heliostat.services.context import Context, programs
from heliostat.services.jobs.submission import draft_jobs
from heliostat.services.sessions.verbs import TOKEN

MOST_REPLICAS = 100


@dataclass(frozen=True, slots=True)
class Wish:
    """A service to be made, or as it should be."""

    name: str
    request: JobRequest
    replicas: int = 1
    visibility: Visibility = Visibility.PRIVATE
    check: HealthCheck = field(default_factory=HealthCheck)
    surge: int = 1
    drain_seconds: float = 30.0


def check_wish(context: Context, caller: Caller, wish: Wish) -> str:
    """All its replicas need is checked as if one were submitted now; the name of its project."""
    if NAME.fullmatch(wish.name) is None:
        raise invalid_field("name", NAME_RULE)
    programs(context)  # or its replicas could not be reached
    _check_request(wish.request)
    check_replicas(wish.replicas)
    limit = wish.request.time_limit_seconds or context.settings.queue.max_time_limit_seconds
    return draft_jobs(context, caller, [replace(wish.request, time_limit_seconds=limit)])[0].project


def check_replicas(count: int) -> None:
    if not 0 <= count <= MOST_REPLICAS:
        raise invalid_field("replicas", f"must be a number from 0 to {MOST_REPLICAS}")


def replica_request(context: Context, service: Service) -> JobRequest:
    """One replica. It finds its port in $PORT, and tells it in a file of its own as a session does."""
    request, spec = service.request, service.request.spec
    env = {**spec.env, TOKEN: service.secret, "HELIOSTAT_SERVICE": service.name}
    return replace(
        request,
        kind="service",
        name=service.name,
        project=service.project,
        spec=replace(spec, script=script_for(SESSION_LAUNCHER), command=("service", *spec.command), env=env),
        time_limit_seconds=request.time_limit_seconds or context.settings.queue.max_time_limit_seconds,
    )


def _check_request(request: JobRequest) -> None:
    if not request.spec.command:
        raise invalid_field("command", "say what to run; it finds its port in $PORT, and {port} stands for it")
    if request.spec.script is not None:
        raise invalid_field("script", "a service runs a command; put the script into a file")
    if request.array is not None or request.placement.tasks > 1:
        name = "array" if request.array is not None else "tasks"
        raise invalid_field(name, "a replica is one task; say replicas for several")
    if request.held or request.after or request.begin is not None:
        name = "held" if request.held else "after" if request.after else "begin"
        raise invalid_field(name, "a service starts at once and stays up: it cannot have this")
