"""Endpoints of long-running web services."""

from typing import Annotated, Literal

from fastapi import Path, Request, Response
from pydantic import BeforeValidator, Field, StringConstraints

from heliostat.api.access_keys import AccessKeyResponse, addresses_for_caller
from heliostat.api.account_schemas import ListResponse
from heliostat.api.field_types import StrictInteger
from heliostat.api.job_schemas import JobBody
from heliostat.api.request_bodies import BodyRouter, RequestBody
from heliostat.api.request_context import CallerDep, ContextDep
from heliostat.api.serialization import Json, serialize_time
from heliostat.errors import Invalid
from heliostat.models import Caller
from heliostat.models.quantities import parse_duration
from heliostat.models.services import HealthCheck, ServiceVisibility
from heliostat.models.sessions import ProxyTarget
from heliostat.services.context import Context
from heliostat.services.web_services import lifecycle as services
from heliostat.services.web_services.lifecycle import ReplicaState, ServiceView
from heliostat.services.web_services.routing import may_manage_service
from heliostat.services.web_services.service_requests import MAX_REPLICAS, ServiceRequest
from heliostat.web.job_form.request_to_body import request_to_body

router = BodyRouter(tags=["services"])
HIDDEN_VALUE = "(hidden)"
NamePath = Annotated[str, Path(max_length=64, description="Name of the service.")]


def _seconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) and len(value) <= 40 else value


DurationSeconds = Annotated[float, BeforeValidator(_seconds), Field(strict=True, allow_inf_nan=False)]
ReplicaCount = Annotated[StrictInteger, Field(ge=0, le=MAX_REPLICAS)]
UrlPath = Annotated[str, StringConstraints(max_length=1000, pattern=r"^/[\x21-\x7e]*$", strict=True)]


class HealthCheckBody(RequestBody):
    """When a replica is considered healthy."""

    path: UrlPath | None = Field(
        default=None, description="HTTP path that must return 2xx or 3xx. Default: only the port is checked."
    )
    interval: Annotated[DurationSeconds, Field(ge=1, le=3600)] = 5.0
    timeout: Annotated[DurationSeconds, Field(ge=0.1, le=60)] = 5.0
    threshold: Annotated[StrictInteger, Field(ge=1, le=100)] = 3
    grace: Annotated[DurationSeconds, Field(ge=1, le=86400)] = 300.0

    def to_health_check(self) -> HealthCheck:
        return HealthCheck(self.path, self.interval, self.timeout, self.threshold, self.grace)


class ServiceBody(JobBody):
    """A service: its replicas, visibility and health check, and the fields of the job of each replica."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=40, strict=True)]
    kind: Literal["service"] = "service"
    replicas: ReplicaCount = 1
    visibility: ServiceVisibility = Field(
        default=ServiceVisibility.PRIVATE, description="private, project or public."
    )
    health: HealthCheckBody = Field(default_factory=HealthCheckBody)
    surge: Annotated[StrictInteger, Field(ge=0, le=10)] = Field(
        default=1, description="Additional replicas during an update; 0 if the cluster has no free resources."
    )
    drain: Annotated[DurationSeconds, Field(ge=0, le=3600)] = Field(
        default=30.0, description="Time for open requests to finish when a replica is removed: 30s."
    )

    def to_service_request(self) -> ServiceRequest:
        return ServiceRequest(
            self.name,
            self.to_request(),
            self.replicas,
            self.visibility,
            self.health.to_health_check(),
            self.surge,
            self.drain,
        )


class ServiceChangeBody(RequestBody):
    """Only given fields change."""

    replicas: ReplicaCount | None = None
    visibility: ServiceVisibility | None = None


@router.post("/services", status_code=201, summary="Start a service")
def create_service(body: ServiceBody, request: Request, caller: CallerDep, context: ContextDep) -> Json:
    return serialize_service_detail(
        request, context, caller, services.create_service(context, caller, body.to_service_request())
    )


@router.get("/services", summary="List the services you may use or manage")
def list_services(request: Request, caller: CallerDep, context: ContextDep) -> ListResponse[Json]:
    found = services.list_services(context, caller)
    return ListResponse(items=[serialize_service(request, context, caller, one) for one in found])


@router.get("/services/{name}", summary="Show a service, its replicas and their health")
def show_service(name: NamePath, request: Request, caller: CallerDep, context: ContextDep) -> Json:
    return serialize_service_detail(request, context, caller, services.show_service(context, caller, name))


@router.put("/services/{name}", summary="Update your service; replicas are replaced one by one")
def update_service(
    name: NamePath, body: ServiceBody, request: Request, caller: CallerDep, context: ContextDep
) -> Json:
    if body.name != name:
        raise Invalid(
            "name: must be the name in the path.", "A service cannot be renamed.", fields={"name": "cannot change"}
        )
    return serialize_service_detail(
        request, context, caller, services.update_service(context, caller, body.to_service_request())
    )


@router.patch("/services/{name}", summary="Change the number of replicas or the visibility")
def scale_service(
    name: NamePath, body: ServiceChangeBody, request: Request, caller: CallerDep, context: ContextDep
) -> Json:
    changed = services.scale_service(context, caller, name, body.replicas, body.visibility)
    return serialize_service_detail(request, context, caller, changed)


@router.post("/services/{name}/restart", summary="Replace all replicas one by one, or start a stopped service")
def restart_service(name: NamePath, request: Request, caller: CallerDep, context: ContextDep) -> Json:
    return serialize_service_detail(request, context, caller, services.restart_service(context, caller, name))


@router.post("/services/{name}/stop", summary="Finish open requests and end all replicas")
def stop_service(name: NamePath, request: Request, caller: CallerDep, context: ContextDep) -> Json:
    return serialize_service_detail(request, context, caller, services.stop_service(context, caller, name))


@router.delete("/services/{name}", status_code=204, summary="Remove a stopped service")
def remove_service(name: NamePath, caller: CallerDep, context: ContextDep) -> None:
    services.remove_service(context, caller, name)


@router.post("/services/{name}/key", summary="Create a key for programs that use a service")
def make_service_key(
    name: NamePath, request: Request, response: Response, caller: CallerDep, context: ContextDep
) -> AccessKeyResponse:
    """Send it as `Authorization: Bearer KEY`. It is not forwarded to the service."""
    secret, until = services.create_service_key(context, caller, name)
    response.headers["Cache-Control"] = "no-store"
    return AccessKeyResponse(url=_url(request, context, name), key=secret, expires_at=until)


def serialize_service(request: Request, context: Context, caller: Caller, view: ServiceView) -> Json:
    one = view.service
    return {
        "name": one.name,
        "user": one.user,
        "project": one.project,
        "state": one.state.value,
        "visibility": one.visibility.value,
        "replicas": one.replicas,
        "healthy": view.healthy_count,
        "summary": view.summary,
        "url": _url(request, context, one.name),
        "generation": one.generation,
        "is_updated": view.is_updated,
        "failures": one.failures,
        "failed_at": serialize_time(one.failed_at),
        "problem": one.problem if may_manage_service(caller.user, one) else None,
        "retry_at": serialize_time(one.retry_at),
        "created_at": serialize_time(one.created_at),
    }


def serialize_service_detail(request: Request, context: Context, caller: Caller, view: ServiceView) -> Json:
    """With its job and replicas for its managers; only the owner sees values of environment variables."""
    one = view.service
    if not may_manage_service(caller.user, one):
        return serialize_service(request, context, caller, view)
    job = request_to_body(one.request)
    if one.user != caller.user.name and "env" in job:
        job["env"] = dict.fromkeys(job["env"], HIDDEN_VALUE)
    check = one.check
    return {
        **serialize_service(request, context, caller, view),
        "surge": one.surge,
        "drain_seconds": one.drain_seconds,
        "health": {
            "path": check.path,
            "interval_seconds": check.interval_seconds,
            "timeout_seconds": check.timeout_seconds,
            "threshold": check.threshold,
            "grace_seconds": check.grace_seconds,
        },
        "job": job,
        "replica_jobs": [_replica(each) for each in view.replicas],
    }


def _replica(one: ReplicaState) -> Json:
    return {
        "job_id": one.replica.job_id,
        "state": one.status,
        "job_state": one.job.state.value if one.job else None,
        "node": one.job.node if one.job else None,
        "generation": one.replica.generation,
        "open_requests": one.open_requests,
        "healthy_at": serialize_time(one.replica.healthy_at),
        "problem": one.problem,
        "created_at": serialize_time(one.replica.created_at),
    }


def _url(request: Request, context: Context, name: str) -> str:
    return addresses_for_caller(request, context).target_url(ProxyTarget(0, service=name))
