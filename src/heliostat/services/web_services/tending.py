"""Keeps services up. What is to be done is worked out once more where it is written: all of it, or nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from heliostat.errors import Conflict, EngineUnavailable, HeliostatError, StoreUnavailable
from heliostat.models import Job, JobId, JobState
from heliostat.models.services import Health, Replica, Service, ServiceId
from heliostat.services.context import Context
from heliostat.services.jobs.submission import prepare_submission
from heliostat.services.jobs.verbs import cancel_within
from heliostat.services.schedules.jobs import Submission, as_owner, within
from heliostat.services.web_services.health import Looks
from heliostat.services.web_services.steps import Failure, Phase, Seen, Steps, after_failure, steps, wanted_of
from heliostat.services.web_services.wishes import replica_request
from heliostat.store import jobs as stored_jobs
from heliostat.store import people
from heliostat.store import services as stored
from heliostat.store.database import Transaction

KEPT = 20  # replicas of each service that are over
_SETTLE_SECONDS = 1.0  # after which nobody in the proxy still means to use a replica that drains
_REFUSED_SECONDS = 30.0
_NOT_NOW = (StoreUnavailable, EngineUnavailable)
_NO_FAILURE = frozenset({JobState.CANCELLED, JobState.TIMED_OUT})


@dataclass(frozen=True, slots=True)
class Tended:
    """What a round has found."""

    watched: frozenset[JobId] = frozenset()  # the jobs of replicas: when one moves, there is something to do
    seconds: float = 60.0  # until there is something to do anyway


@dataclass(frozen=True, slots=True)
class Picture:
    """One service, as it is found."""

    service: Service
    replicas: tuple[Replica, ...]
    jobs: Mapping[JobId, Job]
    busy: frozenset[JobId]  # with requests that are open
    now: datetime

    @property
    def steps(self) -> Steps:
        return steps(wanted_of(self.service, self.now), [self._seen(one) for one in self.replicas])

    def _seen(self, replica: Replica) -> Seen:
        job = self.jobs.get(replica.job_id)
        phase = phase_of(replica, job)
        is_draining = replica.draining_at is not None
        return Seen(replica.job_id, replica.generation, phase, is_draining, is_draining and self._is_free(replica))

    def _is_free(self, replica: Replica) -> bool:
        job, since = self.jobs[replica.job_id], replica.draining_at
        if job.stop_requested in ("cancel", "kill") or since is None:
            return False
        drained = (self.now - since).total_seconds()
        if job.state is not JobState.RUNNING or drained >= self.service.drain_seconds:
            return True
        return drained >= _SETTLE_SECONDS and replica.job_id not in self.busy


def phase_of(replica: Replica, job: Job | None) -> Phase:
    if job is None or job.is_over:
        return Phase.OVER
    if job.state is not JobState.RUNNING:
        return Phase.WAITING
    if replica.attempt != job.attempt or replica.health is Health.STARTING:
        return Phase.STARTING
    return Phase.HEALTHY if replica.health is Health.HEALTHY else Phase.UNHEALTHY


def tend(context: Context, looks: Looks) -> Tended:
    """All services, one after the other. What cannot be done just now is tried again soon."""
    with context.store.read() as conn:
        services = stored.services_to_tend(conn)
    watched: set[JobId] = set()
    wait = 60.0
    for service in services:
        try:
            watched |= tend_service(context, looks, service.id)
            wait = min(wait, _seconds_until_more(context, looks, service.id))
        except _NOT_NOW:
            wait = min(wait, 2.0)
    looks.forget_others(watched)
    return Tended(frozenset(watched), wait)


def tend_service(context: Context, looks: Looks, service_id: ServiceId) -> set[JobId]:
    """What there is to do now for this one; the jobs of its replicas."""
    busy, now = context.traffic.busy(), context.now()
    picture = _picture(context, service_id, busy, now)
    if picture is None:
        return set()
    _note_health(context, looks, picture)
    picture = _picture(context, service_id, busy, now)
    if picture is None or not picture.steps:
        return set() if picture is None else set(picture.jobs)
    submission = _submission(context, picture.service) if picture.steps.start else None
    context.store.write(_carrying_out(context, picture, submission))
    again = _picture(context, service_id, busy, now)
    return set() if again is None else set(again.jobs)


def _picture(context: Context, service_id: ServiceId, busy: frozenset[JobId], now: datetime) -> Picture | None:
    with context.store.read() as conn:
        return _read(conn, service_id, busy, now)


def _read(conn: Connection, service_id: ServiceId, busy: frozenset[JobId], now: datetime) -> Picture | None:
    service = stored.service_by_id(conn, service_id)
    if service is None:
        return None
    replicas = tuple(stored.live_replicas(conn, service_id))
    jobs = stored_jobs.get_jobs(conn, [one.job_id for one in replicas])
    return Picture(service, replicas, jobs, busy, now)


def _submission(context: Context, service: Service) -> Submission | str:
    """As its owner, with the rights they have now; or why not."""
    with context.store.read() as conn:
        owner = people.find_user(conn, service.user)
    if owner is None or not owner.active:
        return f"the account {service.user} is deactivated"
    try:
        return prepare_submission(context, as_owner(owner), [replica_request(context, service)])
    except _NOT_NOW:
        raise
    except HeliostatError as error:
        return error.message


def _carrying_out(
    context: Context, planned: Picture, submission: Submission | str | None
) -> Callable[[Transaction], None]:
    def change(tx: Transaction) -> None:
        found = _read(tx.conn, planned.service.id, planned.busy, planned.now)
        if found is None or found.steps != planned.steps or found.service != planned.service:
            return  # the world has moved on, and is looked at again
        todo = found.steps
        changes = _close(tx, found, todo.close)
        _drain(tx, found, todo.drain, changes)
        _stop(context, tx, found, todo.stop)
        if not changes.get("retry_at"):  # else they wait for their time
            changes |= _start(tx, found, todo.start, submission)
        if changes:
            stored.set_service(tx, found.service.id, **changes)

    return change


def _close(tx: Transaction, found: Picture, job_ids: Sequence[JobId]) -> dict[str, object]:
    """What changes of the service by those that are over."""
    changes: dict[str, object] = {}
    for replica in found.replicas:
        if replica.job_id not in job_ids:
            continue
        job = found.jobs.get(replica.job_id)
        why = replica.problem or (job.reason if job else None) or (f"it {job.state}" if job else "it is gone")
        stored.set_replica(tx, replica.job_id, is_over=True, problem=why)
        if replica.draining_at is None and job is not None and job.state not in _NO_FAILURE:
            changes |= _failed(found, changes, replica, f"job {job.id}: {why}")
    if job_ids:
        stored.prune_replicas(tx, found.service.id, KEPT)
    return changes


def _drain(tx: Transaction, found: Picture, job_ids: Sequence[JobId], changes: dict[str, object]) -> None:
    for replica in found.replicas:
        if replica.job_id not in job_ids:
            continue
        stored.set_replica(tx, replica.job_id, draining_at=found.now)
        if phase_of(replica, found.jobs[replica.job_id]) is Phase.UNHEALTHY:
            why = f"job {replica.job_id}: {replica.problem or 'it does not answer'}"
            changes |= _failed(found, changes, replica, why)


def _failed(found: Picture, changes: dict[str, object], replica: Replica, why: str) -> dict[str, object]:
    service = replace(found.service, **changes)  # type: ignore[arg-type]
    return after_failure(service, Failure(found.now, replica.created_at, replica.healthy_at, why))


def _stop(context: Context, tx: Transaction, found: Picture, job_ids: Sequence[JobId]) -> None:
    owner = people.find_user(tx.conn, found.service.user)
    if owner is None:
        return
    for job_id in job_ids:
        cancel_within(context, as_owner(owner), tx, found.jobs[job_id])


def _start(tx: Transaction, found: Picture, count: int, submission: Submission | str | None) -> dict[str, object]:
    if not count or submission is None:
        return {}
    service, why = found.service, submission if isinstance(submission, str) else ""
    try:
        for _ in range(count):
            if isinstance(submission, str):
                raise Conflict(why, "It is tried again by itself.")
            (job_id,) = within(tx, submission).job_ids
            stored.add_replica(tx, Replica(job_id, service.id, service.generation, found.now))
    except _NOT_NOW:
        raise
    except HeliostatError as error:
        later = found.now + timedelta(seconds=_REFUSED_SECONDS)
        return {"problem": f"no replica could be submitted: {error.message}", "retry_at": later}
    return {} if service.retry_at is None else {"retry_at": None}


def _note_health(context: Context, looks: Looks, picture: Picture) -> None:
    """What was seen of them since the last time; each change of it is written once."""
    for replica in picture.replicas:
        job = picture.jobs.get(replica.job_id)
        if job is None or job.state is not JobState.RUNNING:
            continue
        verdict = looks.look(context, picture.service, replica, job)
        if verdict is not None:
            context.store.write(_noting(replica, job, verdict, picture.now))


def _noting(
    replica: Replica, job: Job, verdict: tuple[Health, str], now: datetime
) -> Callable[[Transaction], None]:
    health, why = verdict
    healthy_at = now if health is Health.HEALTHY else replica.healthy_at

    def change(tx: Transaction) -> None:
        stored.set_replica(
            tx, replica.job_id, health=health, attempt=job.attempt, healthy_at=healthy_at, problem=why or None
        )

    return change


def _seconds_until_more(context: Context, looks: Looks, service_id: ServiceId) -> float:
    """Until there is something to do though nobody says so."""
    now = context.now()
    picture = _picture(context, service_id, frozenset(), now)
    if picture is None:
        return 60.0
    waits = [60.0, looks.seconds_until_due({job.attempt_id for job in picture.jobs.values()})]
    if any(one.draining_at is not None for one in picture.replicas):
        waits.append(0.25)
    if picture.service.retry_at is not None:
        waits.append(max(0.05, (picture.service.retry_at - now).total_seconds()))
    return min(waits)
