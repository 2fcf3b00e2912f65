"""Reconciliation of services: start, drain and stop replicas. The plan is computed again inside the transaction,
and applied only if it is unchanged."""

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
from heliostat.services.web_services.service_requests import replica_job_request
from heliostat.store import accounts
from heliostat.store import jobs as stored_jobs
from heliostat.store import services as stored
from heliostat.store.database import Transaction

MAX_ENDED_REPLICAS_KEPT = 20  # per service
_SETTLE_SECONDS = 1.0  # after which the proxy sends no new requests to a draining replica
_REFUSED_SECONDS = 30.0
_TEMPORARY_ERRORS = (StoreUnavailable, EngineUnavailable)
_EXPECTED_ENDS = frozenset({JobState.CANCELLED, JobState.TIMED_OUT})


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """The result of one reconciliation of all services."""

    replica_job_ids: frozenset[JobId] = frozenset()  # a change of one of these jobs requires a reconciliation
    next_reconcile_seconds: float = 60.0  # until the next reconciliation without such a change


@dataclass(frozen=True, slots=True)
class ServiceSnapshot:
    """The observed state of one service."""

    service: Service
    replicas: tuple[Replica, ...]
    jobs: Mapping[JobId, Job]
    busy_job_ids: frozenset[JobId]  # with open requests
    now: datetime

    @property
    def plan(self) -> ReplicaPlan:
        return plan_replicas(
            desired_replicas_of(self.service, self.now), [self._observe(replica) for replica in self.replicas]
        )

    def _observe(self, replica: Replica) -> ReplicaSnapshot:
        job = self.jobs.get(replica.job_id)
        phase = replica_phase(replica, job)
        is_draining = replica.draining_at is not None
        return ReplicaSnapshot(
            replica.job_id, replica.generation, phase, is_draining, is_draining and self._can_stop(replica)
        )

    def _can_stop(self, replica: Replica) -> bool:
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


def reconcile_services(context: Context, prober: HealthProber) -> ReconcileResult:
    """All services, one after the other. After a temporary error, the next reconciliation follows soon."""
    with context.store.read() as conn:
        services = stored.list_services_to_reconcile(conn)
    job_ids: set[JobId] = set()
    wait = 60.0
    for service in services:
        try:
            job_ids |= reconcile_service(context, prober, service.id)
            wait = min(wait, _seconds_until_next(context, prober, service.id))
        except _TEMPORARY_ERRORS:
            wait = min(wait, 2.0)
    prober.keep_only(job_ids)
    return ReconcileResult(frozenset(job_ids), wait)


def reconcile_service(context: Context, prober: HealthProber, service_id: ServiceId) -> set[JobId]:
    """Reconcile one service. Returns the jobs of its replicas."""
    busy, now = context.traffic.jobs_with_open_requests(), context.now()
    snapshot = _load_snapshot(context, service_id, busy, now)
    if snapshot is None:
        return set()
    _store_health_changes(context, prober, snapshot)
    snapshot = _load_snapshot(context, service_id, busy, now)
    if snapshot is None or not snapshot.plan:
        return set() if snapshot is None else set(snapshot.jobs)
    submission = _submission(context, snapshot.service) if snapshot.plan.start_count else None
    context.store.write(_apply_plan(context, snapshot, submission))
    after = _load_snapshot(context, service_id, busy, now)
    return set() if after is None else set(after.jobs)


def _load_snapshot(
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
    jobs = stored_jobs.get_jobs(conn, [replica.job_id for replica in replicas])
    return ServiceSnapshot(service, replicas, jobs, busy, now)


def _submission(context: Context, service: Service) -> PreparedSubmission | str:
    """Prepared with the owner's current permissions; a string: why it is refused."""
    with context.store.read() as conn:
        owner = accounts.find_user(conn, service.user)
    if owner is None or not owner.active:
        return f"the account {service.user} is deactivated"
    try:
        return prepare_submission(context, caller_for_owner(owner), [replica_job_request(context, service)])
    except _TEMPORARY_ERRORS:
        raise
    except HeliostatError as error:
        return error.message


def _apply_plan(
    context: Context, planned: ServiceSnapshot, submission: PreparedSubmission | str | None
) -> Callable[[Transaction], None]:
    def change(tx: Transaction) -> None:
        current = _read(tx.conn, planned.service.id, planned.busy_job_ids, planned.now)
        if current is None or current.plan != planned.plan or current.service != planned.service:
            return  # changed since it was planned: the next reconciliation plans again
        plan = current.plan
        changes = _close(tx, current, plan.close)
        _drain(tx, current, plan.drain, changes)
        _stop(context, tx, current, plan.stop)
        if not changes.get("retry_at"):  # otherwise the start waits for the backoff
            changes |= _start(tx, current, plan.start_count, submission)
        if changes:
            stored.update_service(tx, current.service.id, **changes)

    return change


def _close(tx: Transaction, current: ServiceSnapshot, job_ids: Sequence[JobId]) -> dict[str, object]:
    """Close ended replicas. Returns the resulting changes of the service."""
    changes: dict[str, object] = {}
    for replica in current.replicas:
        if replica.job_id not in job_ids:
            continue
        job = current.jobs.get(replica.job_id)
        reason = (
            replica.problem
            or (job.reason if job else None)
            or (f"it {job.state}" if job else "its job no longer exists")
        )
        stored.update_replica(tx, replica.job_id, is_over=True, problem=reason)
        if replica.draining_at is None and job is not None and job.state not in _EXPECTED_ENDS:
            changes |= _count_failure(current, changes, replica, f"job {job.id}: {reason}")
    if job_ids:
        stored.prune_replicas(tx, current.service.id, MAX_ENDED_REPLICAS_KEPT)
    return changes


def _drain(
    tx: Transaction, current: ServiceSnapshot, job_ids: Sequence[JobId], changes: dict[str, object]
) -> None:
    for replica in current.replicas:
        if replica.job_id not in job_ids:
            continue
        stored.update_replica(tx, replica.job_id, draining_at=current.now)
        if replica_phase(replica, current.jobs[replica.job_id]) is ReplicaPhase.UNHEALTHY:
            reason = f"job {replica.job_id}: {replica.problem or 'it does not respond'}"
            changes |= _count_failure(current, changes, replica, reason)


def _count_failure(
    current: ServiceSnapshot, changes: dict[str, object], replica: Replica, reason: str
) -> dict[str, object]:
    service = replace(current.service, **changes)  # type: ignore[arg-type]
    return service_changes_after_failure(
        service, ReplicaFailure(current.now, replica.created_at, replica.healthy_at, reason)
    )


def _stop(context: Context, tx: Transaction, current: ServiceSnapshot, job_ids: Sequence[JobId]) -> None:
    owner = accounts.find_user(tx.conn, current.service.user)
    if owner is None:
        return
    for job_id in job_ids:
        cancel_in_transaction(context, caller_for_owner(owner), tx, current.jobs[job_id])


def _start(
    tx: Transaction, current: ServiceSnapshot, count: int, submission: PreparedSubmission | str | None
) -> dict[str, object]:
    if not count or submission is None:
        return {}
    service, reason = current.service, submission if isinstance(submission, str) else ""
    try:
        for _ in range(count):
            if isinstance(submission, str):
                raise Conflict(reason, "It is retried automatically.")
            (job_id,) = submit_in_savepoint(tx, submission).job_ids
            stored.add_replica(tx, Replica(job_id, service.id, service.generation, current.now))
    except _TEMPORARY_ERRORS:
        raise
    except HeliostatError as error:
        retry_at = current.now + timedelta(seconds=_REFUSED_SECONDS)
        return {"problem": f"the submission of a replica failed: {error.message}", "retry_at": retry_at}
    return {} if service.retry_at is None else {"retry_at": None}


def _store_health_changes(context: Context, prober: HealthProber, snapshot: ServiceSnapshot) -> None:
    """Store each change of health since the last time, once."""
    for replica in snapshot.replicas:
        job = snapshot.jobs.get(replica.job_id)
        if job is None or job.state is not JobState.RUNNING:
            continue
        health_change = prober.poll_replica(context, snapshot.service, replica, job)
        if health_change is not None:
            context.store.write(_write_health(replica, job, health_change, snapshot.now))


def _write_health(
    replica: Replica, job: Job, health_change: tuple[ReplicaHealth, str], now: datetime
) -> Callable[[Transaction], None]:
    health, reason = health_change
    healthy_at = now if health is ReplicaHealth.HEALTHY else replica.healthy_at

    def change(tx: Transaction) -> None:
        stored.update_replica(
            tx, replica.job_id, health=health, attempt=job.attempt, healthy_at=healthy_at, problem=reason or None
        )

    return change


def _seconds_until_next(context: Context, prober: HealthProber, service_id: ServiceId) -> float:
    """The time until a probe, a drain or a backoff needs the next reconciliation."""
    now = context.now()
    snapshot = _load_snapshot(context, service_id, frozenset(), now)
    if snapshot is None:
        return 60.0
    waits = [60.0, prober.seconds_until_next_probe({job.attempt_id for job in snapshot.jobs.values()})]
    if any(replica.draining_at is not None for replica in snapshot.replicas):
        waits.append(0.25)
    if snapshot.service.retry_at is not None:
        waits.append(max(0.05, (snapshot.service.retry_at - now).total_seconds()))
    return min(waits)
