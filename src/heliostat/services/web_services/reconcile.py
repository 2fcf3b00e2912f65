"""Keeps services up. What is to be done is worked out once more where it is written: all of it, or nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from heliostat.errors import Conflict, EngineUnavailable, HeliostatError, StoreUnavailable
from heliostat.models import Job, JobId, JobState
from heliostat.models.services import Replica, ReplicaHealth, Service, ServiceId
from heliostat.services.context import Context
from heliostat.services.jobs.control import cancel_in_transaction
from heliostat.services.jobs.submission import prepare_submission
from heliostat.services.schedules.firing_jobs import PreparedSubmission, caller_for_owner, submit_in_savepoint
from heliostat.services.web_services.health import HealthProber
from heliostat.services.web_services.replica_plan import (
    ReplicaFailure,
    ReplicaPhase,
    ReplicaPlan,
    ReplicaSnapshot,
    desired_replicas_of,
    plan_replicas,
    service_changes_after_failure,
)
from heliostat.services.web_services.requests import replica_job_request
from heliostat.store import accounts
from heliostat.store import jobs as stored_jobs
from heliostat.store import services as stored
from heliostat.store.database import Transaction

MAX_ENDED_REPLICAS_KEPT = 20  # replicas of each service that are over
_SETTLE_SECONDS = 1.0  # after which nobody in the proxy still means to use a replica that drains
_REFUSED_SECONDS = 30.0
_NOT_NOW = (StoreUnavailable, EngineUnavailable)
_NO_FAILURE = frozenset({JobState.CANCELLED, JobState.TIMED_OUT})


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """What a round has found."""

    replica_job_ids: frozenset[JobId] = (
        frozenset()
    )  # the jobs of replicas: when one moves, there is something to do
    next_reconcile_seconds: float = 60.0  # until there is something to do anyway


@dataclass(frozen=True, slots=True)
class ServiceSnapshot:
    """One service, as it is found."""

    service: Service
    replicas: tuple[Replica, ...]
    jobs: Mapping[JobId, Job]
    busy_job_ids: frozenset[JobId]  # with requests that are open
    now: datetime

    @property
    def plan(self) -> ReplicaPlan:
        return plan_replicas(
            desired_replicas_of(self.service, self.now), [self._seen(one) for one in self.replicas]
        )

    def _seen(self, replica: Replica) -> ReplicaSnapshot:
        job = self.jobs.get(replica.job_id)
        phase = replica_phase(replica, job)
        is_draining = replica.draining_at is not None
        return ReplicaSnapshot(
            replica.job_id, replica.generation, phase, is_draining, is_draining and self._is_free(replica)
        )

    def _is_free(self, replica: Replica) -> bool:
        job, since = self.jobs[replica.job_id], replica.draining_at
        if job.stop_requested in ("cancel", "kill") or since is None:
            return False
        drained = (self.now - since).total_seconds()
        if job.state is not JobState.RUNNING or drained >= self.service.drain_seconds:
            return True
        return drained >= _SETTLE_SECONDS and replica.job_id not in self.busy_job_ids


def replica_phase(replica: Replica, job: Job | None) -> ReplicaPhase:
    if job is None or job.is_terminal:
        return ReplicaPhase.TERMINAL
    if job.state is not JobState.RUNNING:
        return ReplicaPhase.WAITING
    if replica.attempt != job.attempt or replica.health is ReplicaHealth.STARTING:
        return ReplicaPhase.STARTING
    return ReplicaPhase.HEALTHY if replica.health is ReplicaHealth.HEALTHY else ReplicaPhase.UNHEALTHY


def reconcile_services(context: Context, looks: HealthProber) -> ReconcileResult:
    """All services, one after the other. What cannot be done just now is tried again soon."""
    with context.store.read() as conn:
        services = stored.list_services_to_reconcile(conn)
    watched: set[JobId] = set()
    wait = 60.0
    for service in services:
        try:
            watched |= reconcile_service(context, looks, service.id)
            wait = min(wait, _seconds_until_more(context, looks, service.id))
        except _NOT_NOW:
            wait = min(wait, 2.0)
    looks.keep_only(watched)
    return ReconcileResult(frozenset(watched), wait)


def reconcile_service(context: Context, looks: HealthProber, service_id: ServiceId) -> set[JobId]:
    """What there is to do now for this one; the jobs of its replicas."""
    busy, now = context.traffic.jobs_with_open_requests(), context.now()
    picture = _picture(context, service_id, busy, now)
    if picture is None:
        return set()
    _note_health(context, looks, picture)
    picture = _picture(context, service_id, busy, now)
    if picture is None or not picture.plan:
        return set() if picture is None else set(picture.jobs)
    submission = _submission(context, picture.service) if picture.plan.start_count else None
    context.store.write(_carrying_out(context, picture, submission))
    again = _picture(context, service_id, busy, now)
    return set() if again is None else set(again.jobs)


def _picture(
    context: Context, service_id: ServiceId, busy: frozenset[JobId], now: datetime
) -> ServiceSnapshot | None:
    with context.store.read() as conn:
        return _read(conn, service_id, busy, now)


def _read(
    conn: Connection, service_id: ServiceId, busy: frozenset[JobId], now: datetime
) -> ServiceSnapshot | None:
    service = stored.find_service_by_id(conn, service_id)
    if service is None:
        return None
    replicas = tuple(stored.list_live_replicas(conn, service_id))
    jobs = stored_jobs.get_jobs(conn, [one.job_id for one in replicas])
    return ServiceSnapshot(service, replicas, jobs, busy, now)


def _submission(context: Context, service: Service) -> PreparedSubmission | str:
    """As its owner, with the rights they have now; or why not."""
    with context.store.read() as conn:
        owner = accounts.find_user(conn, service.user)
    if owner is None or not owner.active:
        return f"the account {service.user} is deactivated"
    try:
        return prepare_submission(context, caller_for_owner(owner), [replica_job_request(context, service)])
    except _NOT_NOW:
        raise
    except HeliostatError as error:
        return error.message


def _carrying_out(
    context: Context, planned: ServiceSnapshot, submission: PreparedSubmission | str | None
) -> Callable[[Transaction], None]:
    def change(tx: Transaction) -> None:
        found = _read(tx.conn, planned.service.id, planned.busy_job_ids, planned.now)
        if found is None or found.plan != planned.plan or found.service != planned.service:
            return  # the world has moved on, and is looked at again
        todo = found.plan
        changes = _close(tx, found, todo.close)
        _drain(tx, found, todo.drain, changes)
        _stop(context, tx, found, todo.stop)
        if not changes.get("retry_at"):  # else they wait for their time
            changes |= _start(tx, found, todo.start_count, submission)
        if changes:
            stored.update_service(tx, found.service.id, **changes)

    return change


def _close(tx: Transaction, found: ServiceSnapshot, job_ids: Sequence[JobId]) -> dict[str, object]:
    """What changes of the service by those that are over."""
    changes: dict[str, object] = {}
    for replica in found.replicas:
        if replica.job_id not in job_ids:
            continue
        job = found.jobs.get(replica.job_id)
        why = replica.problem or (job.reason if job else None) or (f"it {job.state}" if job else "it is gone")
        stored.update_replica(tx, replica.job_id, is_over=True, problem=why)
        if replica.draining_at is None and job is not None and job.state not in _NO_FAILURE:
            changes |= _failed(found, changes, replica, f"job {job.id}: {why}")
    if job_ids:
        stored.prune_replicas(tx, found.service.id, MAX_ENDED_REPLICAS_KEPT)
    return changes


def _drain(tx: Transaction, found: ServiceSnapshot, job_ids: Sequence[JobId], changes: dict[str, object]) -> None:
    for replica in found.replicas:
        if replica.job_id not in job_ids:
            continue
        stored.update_replica(tx, replica.job_id, draining_at=found.now)
        if replica_phase(replica, found.jobs[replica.job_id]) is ReplicaPhase.UNHEALTHY:
            why = f"job {replica.job_id}: {replica.problem or 'it does not answer'}"
            changes |= _failed(found, changes, replica, why)


def _failed(found: ServiceSnapshot, changes: dict[str, object], replica: Replica, why: str) -> dict[str, object]:
    service = replace(found.service, **changes)  # type: ignore[arg-type]
    return service_changes_after_failure(
        service, ReplicaFailure(found.now, replica.created_at, replica.healthy_at, why)
    )


def _stop(context: Context, tx: Transaction, found: ServiceSnapshot, job_ids: Sequence[JobId]) -> None:
    owner = accounts.find_user(tx.conn, found.service.user)
    if owner is None:
        return
    for job_id in job_ids:
        cancel_in_transaction(context, caller_for_owner(owner), tx, found.jobs[job_id])


def _start(
    tx: Transaction, found: ServiceSnapshot, count: int, submission: PreparedSubmission | str | None
) -> dict[str, object]:
    if not count or submission is None:
        return {}
    service, why = found.service, submission if isinstance(submission, str) else ""
    try:
        for _ in range(count):
            if isinstance(submission, str):
                raise Conflict(why, "It is tried again by itself.")
            (job_id,) = submit_in_savepoint(tx, submission).job_ids
            stored.add_replica(tx, Replica(job_id, service.id, service.generation, found.now))
    except _NOT_NOW:
        raise
    except HeliostatError as error:
        later = found.now + timedelta(seconds=_REFUSED_SECONDS)
        return {"problem": f"no replica could be submitted: {error.message}", "retry_at": later}
    return {} if service.retry_at is None else {"retry_at": None}


def _note_health(context: Context, looks: HealthProber, picture: ServiceSnapshot) -> None:
    """What was seen of them since the last time; each change of it is written once."""
    for replica in picture.replicas:
        job = picture.jobs.get(replica.job_id)
        if job is None or job.state is not JobState.RUNNING:
            continue
        verdict = looks.poll_replica(context, picture.service, replica, job)
        if verdict is not None:
            context.store.write(_noting(replica, job, verdict, picture.now))


def _noting(
    replica: Replica, job: Job, verdict: tuple[ReplicaHealth, str], now: datetime
) -> Callable[[Transaction], None]:
    health, why = verdict
    healthy_at = now if health is ReplicaHealth.HEALTHY else replica.healthy_at

    def change(tx: Transaction) -> None:
        stored.update_replica(
            tx, replica.job_id, health=health, attempt=job.attempt, healthy_at=healthy_at, problem=why or None
        )

    return change


def _seconds_until_more(context: Context, looks: HealthProber, service_id: ServiceId) -> float:
    """Until there is something to do though nobody says so."""
    now = context.now()
    picture = _picture(context, service_id, frozenset(), now)
    if picture is None:
        return 60.0
    waits = [60.0, looks.seconds_until_next_probe({job.attempt_id for job in picture.jobs.values()})]
    if any(one.draining_at is not None for one in picture.replicas):
        waits.append(0.25)
    if picture.service.retry_at is not None:
        waits.append(max(0.05, (picture.service.retry_at - now).total_seconds()))
    return min(waits)
