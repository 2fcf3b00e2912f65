"""Web services: create, list, update, scale, restart, stop and remove. Only the owner can change a service;
managers of the project can see, stop and remove it."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from heliostat.errors import Conflict, Forbidden
from heliostat.models import Caller, Job, User
from heliostat.models.services import Replica, Service, ServiceState, ServiceVisibility
from heliostat.models.sessions import ProxyTarget
from heliostat.services.context import Context
from heliostat.services.permissions import write_as_caller
from heliostat.services.web_services.reconcile import replica_phase
from heliostat.services.web_services.replica_plan import CRASH_LOOP_FAILURES, ReplicaPhase
from heliostat.services.web_services.routing import may_see_service, require_service_access, service_not_found
from heliostat.services.web_services.service_requests import (
    ServiceRequest,
    check_replica_count,
    check_service_request,
)
from heliostat.store import accounts
from heliostat.store import jobs as stored_jobs
from heliostat.store import services as stored
from heliostat.store.database import Transaction

MAX_SERVICES_PER_USER = 100
_MAX_ENDED_SHOWN = 30


@dataclass(frozen=True, slots=True)
class ReplicaState:
    replica: Replica
    job: Job | None
    phase: ReplicaPhase
    open_requests: int
    wait_reason: str | None = None

    @property
    def problem(self) -> str | None:
        return self.replica.problem or self.wait_reason

    @property
    def status(self) -> str:
        """The state in one word."""
        if self.replica.is_over or self.phase is ReplicaPhase.TERMINAL:
            return "over"
        return "draining" if self.replica.draining_at is not None else self.phase.name.lower()


@dataclass(frozen=True, slots=True)
class ServiceView:
    """A service and its newest replicas; ended ones last."""

    service: Service
    replicas: tuple[ReplicaState, ...]
    now: datetime

    @property
    def healthy_count(self) -> int:
        return sum(each.status == "healthy" for each in self.replicas)

    @property
    def is_updated(self) -> bool:
        """All live replicas belong to the current generation."""
        live = [each.replica for each in self.replicas if each.status != "over"]
        return all(each.generation == self.service.generation for each in live)

    @property
    def summary(self) -> str:
        """The state of the service, in a sentence."""
        service, healthy = (
            self.service,
            f"{self.healthy_count} of {self.service.desired_replicas} replicas are healthy",
        )
        live = any(each.status != "over" for each in self.replicas)
        if service.state is ServiceState.STOPPED:
            return "The service is being stopped." if live else "The service is stopped."
        if self.healthy_count < service.desired_replicas and service.failures >= CRASH_LOOP_FAILURES:
            return (
                f"{healthy}. Crash loop: the service failed {service.failures} times in a row{self._next_retry}."
            )
        if not self.is_updated:
            return f"{healthy}; an update is in progress."
        if self.healthy_count < service.desired_replicas and service.problem and service.retry_at:
            return f"{healthy}{self._next_retry}."
        return f"{healthy}."

    @property
    def _next_retry(self) -> str:
        if self.service.retry_at is None:
            return ""
        return f"; next try in {max(0, round((self.service.retry_at - self.now).total_seconds()))} seconds"


def create_service(context: Context, caller: Caller, desired: ServiceRequest) -> ServiceView:
    """The reconcile loop submits its replicas."""
    project = check_service_request(context, caller, desired)
    new_service = Service(
        id=0,
        name=desired.name,
        user=caller.user.name,
        project=project,
        state=ServiceState.ACTIVE,
        request=replace(desired.job_request, project=project),
        replicas=desired.replicas,
        visibility=desired.visibility,
        secret=secrets.token_urlsafe(32),
        created_at=context.now(),
        check=desired.check,
        surge=desired.surge,
        drain_seconds=desired.drain_seconds,
    )

    def change(tx: Transaction, actor: User) -> None:
        if stored.find_service(tx.conn, new_service.name) is not None:
            raise Conflict(
                f"The name {new_service.name} is taken.",
                "Choose another name, or change your service: helio service update.",
            )
        if stored.count_services_of_user(tx.conn, actor.name) >= MAX_SERVICES_PER_USER:
            raise Conflict(f"You have {MAX_SERVICES_PER_USER} services, the maximum.", "Remove one first.")
        stored.add_service(tx, new_service)
        accounts.add_audit_entry(
            tx, caller, "service.create", f"service {new_service.name}", _audit_details(new_service), context.now()
        )

    write_as_caller(context, caller, change)
    return show_service(context, caller, new_service.name)


def list_services(context: Context, caller: Caller) -> list[ServiceView]:
    """Services that the caller may use or manage, by name."""
    with context.store.read() as conn:
        visible = [service for service in stored.list_services(conn) if may_see_service(caller.user, service)]
    return [_view(context, service) for service in visible]


def show_service(context: Context, caller: Caller, name: str) -> ServiceView:
    return _view(context, _require_visible(context, caller, name))


def update_service(context: Context, caller: Caller, desired: ServiceRequest) -> ServiceView:
    """Replace all settings. If the job request changed, replicas are replaced one by one."""
    project = check_service_request(context, caller, desired)
    values: dict[str, Any] = {
        "request": replace(desired.job_request, project=project),
        "project": project,
        "replicas": desired.replicas,
        "visibility": desired.visibility,
        "check": desired.check,
        "surge": desired.surge,
        "drain_seconds": desired.drain_seconds,
        "state": ServiceState.ACTIVE,
    }

    def changes(current: Service) -> dict[str, Any]:
        is_same = (current.request, current.project) == (values["request"], project)
        return values if is_same else values | _next_generation(current)

    return _change(context, caller, desired.name, "update", changes)


def scale_service(
    context: Context,
    caller: Caller,
    name: str,
    replicas: int | None = None,
    visibility: ServiceVisibility | None = None,
) -> ServiceView:
    """Change the number of replicas or the visibility; running replicas stay."""
    if replicas is not None:
        check_replica_count(replicas)
    requested = {"replicas": replicas, "visibility": visibility}
    values = {name: value for name, value in requested.items() if value is not None}
    return _change(context, caller, name, "scale", lambda current: values)


def restart_service(context: Context, caller: Caller, name: str) -> ServiceView:
    """Replace each replica, as in an update. Also starts a stopped service, or one that waits for a backoff."""
    return _change(
        context,
        caller,
        name,
        "restart",
        lambda current: {"state": ServiceState.ACTIVE} | _next_generation(current),
    )


def stop_service(context: Context, caller: Caller, name: str) -> ServiceView:
    """Drain and stop its replicas; the service itself stays."""
    values = {"state": ServiceState.STOPPED, "retry_at": None}
    return _change(context, caller, name, "stop", lambda current: values)


def remove_service(context: Context, caller: Caller, name: str) -> None:
    """Remove a stopped service. The jobs of its replicas stay in the history."""
    visible_service = _require_visible(context, caller, name)
    _check_owner(caller, visible_service, by_manager=True)

    def change(tx: Transaction, actor: User) -> None:
        current = stored.find_service(tx.conn, name)
        if current is None or current.id != visible_service.id:
            raise service_not_found(name)
        numbers = [each.job_id for each in stored.list_live_replicas(tx.conn, current.id)]
        has_live_jobs = any(not job.is_terminal for job in stored_jobs.get_jobs(tx.conn, numbers).values())
        if current.state is ServiceState.ACTIVE or has_live_jobs:
            raise Conflict(f"Service {name} is not stopped.", f"First: helio service stop {name}.")
        stored.remove_service(tx, current.id)
        accounts.add_audit_entry(
            tx, caller, "service.remove", f"service {name}", _audit_details(current), context.now()
        )

    write_as_caller(context, caller, change)


def create_service_key(context: Context, caller: Caller, name: str) -> tuple[str, str]:
    """A secret for access by a program of the caller, and when it expires (ISO 8601)."""
    require_service_access(context, caller.user, name, is_browser=False)
    secret, until = context.authenticator.proxy_grants.create_program_grant(
        caller.user.name, ProxyTarget(0, service=name)
    )
    return secret, until.isoformat()


def _view(context: Context, service: Service) -> ServiceView:
    with context.store.read() as conn:
        replicas = stored.list_newest_replicas(conn, service.id, service.replicas + _MAX_ENDED_SHOWN)
        jobs = stored_jobs.get_jobs(conn, [each.job_id for each in replicas])
    states = [_state(context, each, jobs.get(each.job_id)) for each in replicas]
    shown = sorted(states, key=lambda each: each.status == "over")[: service.replicas + _MAX_ENDED_SHOWN]
    return ServiceView(service, tuple(shown), context.now())


def _state(context: Context, replica: Replica, job: Job | None) -> ReplicaState:
    phase = replica_phase(replica, job)
    wait_reason = (
        context.controller.wait_reason(job) if job is not None and phase is ReplicaPhase.WAITING else None
    )
    return ReplicaState(replica, job, phase, context.traffic.open_requests_of(replica.job_id), wait_reason)


def _require_visible(context: Context, caller: Caller, name: str) -> Service:
    with context.store.read() as conn:
        service = stored.find_service(conn, name)
    if service is None or not may_see_service(caller.user, service):
        raise service_not_found(name)
    return service


def _check_owner(caller: Caller, service: Service, *, by_manager: bool = False) -> None:
    """Only the owner: its replicas run with the owner's permissions."""
    if service.user == caller.user.name or (by_manager and caller.user.may_manage(service.project)):
        return
    raise Forbidden(
        f"Service {service.name} belongs to {service.user}.",
        f"Ask {service.user}. Managers of project {service.project} can stop it.",
    )


def _change(
    context: Context, caller: Caller, name: str, verb: str, values: Callable[[Service], Mapping[str, Any]]
) -> ServiceView:
    visible_service = _require_visible(context, caller, name)
    _check_owner(caller, visible_service, by_manager=verb == "stop")

    def change(tx: Transaction, actor: User) -> None:
        current = stored.find_service(tx.conn, name)
        if current is None or current.id != visible_service.id:
            raise service_not_found(name)
        new = values(current)
        stored.update_service(tx, current.id, **new)
        details = _audit_details(replace(current, **new))
        accounts.add_audit_entry(tx, caller, f"service.{verb}", f"service {name}", details, context.now())

    write_as_caller(context, caller, change)
    return show_service(context, caller, name)


def _next_generation(current: Service) -> dict[str, Any]:
    """Earlier failures do not count for a new generation."""
    return {"generation": current.generation + 1, "failures": 0, "problem": None, "retry_at": None}


def _audit_details(service: Service) -> dict[str, object]:
    return {
        "user": service.user,
        "project": service.project,
        "visibility": service.visibility.value,
        "state": service.state.value,
        "replicas": service.replicas,
        "generation": service.generation,
    }
