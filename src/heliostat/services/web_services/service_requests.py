"""Service requests: validation, and the job request of a replica."""

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
    """A new service, or the desired state of an existing one."""

    name: str
    job_request: JobRequest
    replicas: int = 1
    visibility: ServiceVisibility = ServiceVisibility.PRIVATE
    check: HealthCheck = field(default_factory=HealthCheck)
    surge: int = 1
    drain_seconds: float = 30.0


def check_service_request(context: Context, caller: Caller, desired: ServiceRequest) -> str:
    """Check it as if a replica were submitted now. Returns the project."""
    if SERVICE_NAME_PATTERN.fullmatch(desired.name) is None:
        raise invalid_field("name", SERVICE_NAME_RULE)
    require_program_engine(context)  # only these engines have ports
    _check_request(desired.job_request)
    check_replica_count(desired.replicas)
    limit = desired.job_request.time_limit_seconds or context.settings.queue.max_time_limit_seconds
    return draft_jobs(context, caller, [replace(desired.job_request, time_limit_seconds=limit)])[0].project


def check_replica_count(count: int) -> None:
    if not 0 <= count <= MAX_REPLICAS:
        raise invalid_field("replicas", f"must be a number from 0 to {MAX_REPLICAS}")


def replica_job_request(context: Context, service: Service) -> JobRequest:
    """The job of one replica. Its port is in $PORT; the launcher writes the port to a file, as for a session."""
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
        raise invalid_field("command", "must not be empty; the port is in $PORT, and {port} is replaced by it")
    if request.spec.script is not None:
        raise invalid_field("script", "a service runs a command; put the script into a file")
    if request.array is not None or request.placement.tasks > 1:
        name = "array" if request.array is not None else "tasks"
        raise invalid_field(name, "a replica has one task; set replicas instead")
    if request.held or request.after or request.begin is not None:
        name = "held" if request.held else "after" if request.after else "begin"
        raise invalid_field(name, "is not allowed for a service, which starts at once and stays up")
