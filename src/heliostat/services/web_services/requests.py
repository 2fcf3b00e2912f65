"""What somebody wants of a service, checked and completed; and what is submitted for each of its replicas."""

from dataclasses import dataclass, field, replace

from heliostat.errors import invalid_field
from heliostat.models import Caller, JobRequest
from heliostat.models.services import (
    SERVICE_NAME_PATTERN,
    SERVICE_NAME_RULE,
    HealthCheck,
    Service,
    ServiceVisibility,
)
from heliostat.payloads.archive import SESSION_LAUNCHER, program_script
from heliostat.services.context import Context, require_program_engine
from heliostat.services.jobs.submission import draft_jobs
from heliostat.services.sessions.lifecycle import TOKEN_VARIABLE

MAX_REPLICAS = 100


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A service to be made, or as it should be."""

    name: str
    job_request: JobRequest
    replicas: int = 1
    visibility: ServiceVisibility = ServiceVisibility.PRIVATE
    check: HealthCheck = field(default_factory=HealthCheck)
    surge: int = 1
    drain_seconds: float = 30.0


def check_service_request(context: Context, caller: Caller, wish: ServiceRequest) -> str:
    """All its replicas need is checked as if one were submitted now; the name of its project."""
    if SERVICE_NAME_PATTERN.fullmatch(wish.name) is None:
        raise invalid_field("name", SERVICE_NAME_RULE)
    require_program_engine(context)  # or its replicas could not be reached
    _check_request(wish.job_request)
    check_replica_count(wish.replicas)
    limit = wish.job_request.time_limit_seconds or context.settings.queue.max_time_limit_seconds
    return draft_jobs(context, caller, [replace(wish.job_request, time_limit_seconds=limit)])[0].project


def check_replica_count(count: int) -> None:
    if not 0 <= count <= MAX_REPLICAS:
        raise invalid_field("replicas", f"must be a number from 0 to {MAX_REPLICAS}")


def replica_job_request(context: Context, service: Service) -> JobRequest:
    """One replica. It finds its port in $PORT, and tells it in a file of its own as a session does."""
    request, spec = service.request, service.request.spec
    env = {**spec.env, TOKEN_VARIABLE: service.secret, "HELIOSTAT_SERVICE": service.name}
    return replace(
        request,
        kind="service",
        name=service.name,
        project=service.project,
        spec=replace(spec, script=program_script(SESSION_LAUNCHER), command=("service", *spec.command), env=env),
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
