"""Making, changing and stopping services. Theirs are the owner's; who manages the project sees and stops them."""

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
from heliostat.services.web_services.requests import ServiceRequest, check_replica_count, check_service_request
from heliostat.services.web_services.routing import may_see_service, require_service_access, service_not_found
from heliostat.store import accounts
from heliostat.store import jobs as stored_jobs
from heliostat.store import services as stored
from heliostat.store.database import Transaction

MAX_SERVICES_PER_USER = 100
_SHOWN_REPLICAS = 30


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
        """What it does, in one."""
        if self.replica.is_over or self.phase is ReplicaPhase.TERMINAL:
            return "over"
        return "draining" if self.replica.draining_at is not None else self.phase.name.lower()


@dataclass(frozen=True, slots=True)
class ServiceView:
    """A service, and its newest replicas; those that are over last."""

    service: Service
    replicas: tuple[ReplicaState, ...]
    now: datetime

    @property
    def healthy_count(self) -> int:
        return sum(one.status == "healthy" for one in self.replicas)

    @property
    def is_updated(self) -> bool:
        """No replica of an earlier generation is left."""
        live = [one.replica for one in self.replicas if one.status != "over"]
        return all(one.generation == self.service.generation for one in live)

    @property
    def summary(self) -> str:
        """How it is, in a sentence."""
        service, many = (
            self.service,
            f"{self.healthy_count} of {self.service.desired_replicas} replicas are healthy",
        )
        live = any(one.status != "over" for one in self.replicas)
        if service.state is ServiceState.STOPPED:
            return "It is being stopped." if live else "It is stopped."
        if self.healthy_count < service.desired_replicas and service.failures >= CRASH_LOOP_FAILURES:
            return f"{many}. Crash loop: it failed {service.failures} times in a row{self._next_try}."
        if not self.is_updated:
            return f"{many}; it is being updated."
        if self.healthy_count < service.desired_replicas and service.problem and service.retry_at:
            return f"{many}{self._next_try}."
        return f"{many}."

    @property
    def _next_try(self) -> str:
        if self.service.retry_at is None:
            return ""
        return f"; next try in {max(0, round((self.service.retry_at - self.now).total_seconds()))} seconds"


def create_service(context: Context, caller: Caller, wish: ServiceRequest) -> ServiceView:
    """Its replicas are submitted in a moment, by whoever keeps services up."""
    project = check_service_request(context, caller, wish)
    made = Service(
        id=0,
        name=wish.name,
        user=caller.user.name,
        project=project,
        state=ServiceState.ACTIVE,
        request=replace(wish.job_request, project=project),
        replicas=wish.replicas,
        visibility=wish.visibility,
        secret=secrets.token_urlsafe(32),
        created_at=context.now(),
        check=wish.check,
        surge=wish.surge,
        drain_seconds=wish.drain_seconds,
    )

    def change(tx: Transaction, actor: User) -> None:
        if stored.find_service(tx.conn, made.name) is not None:
            raise Conflict(
                f"The name {made.name} is taken.",
                "Choose another; yours is changed by `helio service update`, freed by `helio service remove`.",
            )
        if stored.count_services_of_user(tx.conn, actor.name) >= MAX_SERVICES_PER_USER:
            raise Conflict(
                f"You have {MAX_SERVICES_PER_USER} services; more are not possible.", "Remove one first."
            )
        stored.add_service(tx, made)
        accounts.add_audit_entry(tx, caller, "service.create", f"service {made.name}", _told(made), context.now())

    write_as_caller(context, caller, change)
    return show_service(context, caller, made.name)


def list_services(context: Context, caller: Caller) -> list[ServiceView]:
    """Those the caller may use or manages, by name."""
    with context.store.read() as conn:
        found = [one for one in stored.list_services(conn) if may_see_service(caller.user, one)]
    return [_view(context, one) for one in found]


def show_service(context: Context, caller: Caller, name: str) -> ServiceView:
    return _view(context, _seen(context, caller, name))


def update_service(context: Context, caller: Caller, wish: ServiceRequest) -> ServiceView:
    """All of it anew. Replicas are replaced one by one if what they run has changed."""
    project = check_service_request(context, caller, wish)
    values: dict[str, Any] = {
        "request": replace(wish.job_request, project=project),
        "project": project,
        "replicas": wish.replicas,
        "visibility": wish.visibility,
        "check": wish.check,
        "surge": wish.surge,
        "drain_seconds": wish.drain_seconds,
        "state": ServiceState.ACTIVE,
    }

    def more(found: Service) -> dict[str, Any]:
        is_same = (found.request, found.project) == (values["request"], project)
        return values if is_same else values | _next_generation(found)

    return _change(context, caller, wish.name, "update", more)


def scale_service(
    context: Context,
    caller: Caller,
    name: str,
    replicas: int | None = None,
    visibility: ServiceVisibility | None = None,
) -> ServiceView:
    """More or fewer replicas, or other people; what runs stays."""
    if replicas is not None:
        check_replica_count(replicas)
    given = {"replicas": replicas, "visibility": visibility}
    values = {name: value for name, value in given.items() if value is not None}
    return _change(context, caller, name, "scale", lambda found: values)


def restart_service(context: Context, caller: Caller, name: str) -> ServiceView:
    """Each replica anew, as in an update; also of one that was stopped, or waits to try again."""
    return _change(
        context, caller, name, "restart", lambda found: {"state": ServiceState.ACTIVE} | _next_generation(found)
    )


def stop_service(context: Context, caller: Caller, name: str) -> ServiceView:
    """Its replicas are drained and ended; it stays known by its name."""
    values = {"state": ServiceState.STOPPED, "retry_at": None}
    return _change(context, caller, name, "stop", lambda found: values)


def remove_service(context: Context, caller: Caller, name: str) -> None:
    """Its name is free again; the jobs that were its replicas stay in the history."""
    seen = _seen(context, caller, name)
    _check_owner(caller, seen, by_manager=True)

    def change(tx: Transaction, actor: User) -> None:
        found = stored.find_service(tx.conn, name)
        if found is None or found.id != seen.id:
            raise service_not_found(name)
        numbers = [one.job_id for one in stored.list_live_replicas(tx.conn, found.id)]
        is_left = any(not job.is_terminal for job in stored_jobs.get_jobs(tx.conn, numbers).values())
        if found.state is ServiceState.ACTIVE or is_left:
            raise Conflict(f"Service {name} is not stopped.", f"First: helio service stop {name}.")
        stored.remove_service(tx, found.id)
        accounts.add_audit_entry(tx, caller, "service.remove", f"service {name}", _told(found), context.now())

    write_as_caller(context, caller, change)


def create_service_key(context: Context, caller: Caller, name: str) -> tuple[str, str]:
    """A secret with which a program of the caller uses the service, and until when (ISO 8601)."""
    require_service_access(context, caller.user, name, is_browser=False)
    secret, until = context.identities.proxy_grants.create_program_grant(
        caller.user.name, ProxyTarget(0, service=name)
    )
    return secret, until.isoformat()


def _view(context: Context, service: Service) -> ServiceView:
    with context.store.read() as conn:
        replicas = stored.list_newest_replicas(conn, service.id, service.replicas + _SHOWN_REPLICAS)
        jobs = stored_jobs.get_jobs(conn, [one.job_id for one in replicas])
    states = [_state(context, one, jobs.get(one.job_id)) for one in replicas]
    shown = sorted(states, key=lambda one: one.status == "over")[: service.replicas + _SHOWN_REPLICAS]
    return ServiceView(service, tuple(shown), context.now())


def _state(context: Context, replica: Replica, job: Job | None) -> ReplicaState:
    phase = replica_phase(replica, job)
    why = context.controller.wait_reason(job) if job is not None and phase is ReplicaPhase.WAITING else None
    return ReplicaState(replica, job, phase, context.traffic.open_requests_of(replica.job_id), why)


def _seen(context: Context, caller: Caller, name: str) -> Service:
    with context.store.read() as conn:
        service = stored.find_service(conn, name)
    if service is None or not may_see_service(caller.user, service):
        raise service_not_found(name)
    return service


def _check_owner(caller: Caller, service: Service, *, by_manager: bool = False) -> None:
    """It runs with the owner's rights: nobody else says what."""
    if service.user == caller.user.name or (by_manager and caller.user.may_manage(service.project)):
        return
    raise Forbidden(
        f"Service {service.name} belongs to {service.user}.",
        f"Ask {service.user}; who manages project {service.project} may stop it.",
    )


def _change(
    context: Context, caller: Caller, name: str, verb: str, values: Callable[[Service], Mapping[str, Any]]
) -> ServiceView:
    seen = _seen(context, caller, name)
    _check_owner(caller, seen, by_manager=verb == "stop")

    def change(tx: Transaction, actor: User) -> None:
        found = stored.find_service(tx.conn, name)
        if found is None or found.id != seen.id:
            raise service_not_found(name)
        new = values(found)
        stored.update_service(tx, found.id, **new)
        told = _told(replace(found, **new))
        accounts.add_audit_entry(tx, caller, f"service.{verb}", f"service {name}", told, context.now())

    write_as_caller(context, caller, change)
    return show_service(context, caller, name)


def _next_generation(found: Service) -> dict[str, Any]:
    """What failed before says nothing about it."""
    return {"generation": found.generation + 1, "failures": 0, "problem": None, "retry_at": None}


def _told(one: Service) -> dict[str, object]:
    told = {"user": one.user, "project": one.project, "visibility": one.visibility.value, "state": one.state.value}
    return {**told, "replicas": one.replicas, "generation": one.generation}
