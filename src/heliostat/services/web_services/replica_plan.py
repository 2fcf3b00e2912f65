"""Replica plan: which replicas of a service to start, drain, stop and close. Pure functions.

A replica is removed in two steps: it is drained (no new requests), and stopped once its open requests are
answered. Draining replicas do not count. During an update there are at most `surge` replicas more than desired,
and a healthy old replica is drained only if the desired number is healthy without it; without a surge, one less
than desired.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum

from heliostat.models import JobId
from heliostat.models.services import Service

STABLE_SECONDS = 60.0  # a replica that was healthy for this time resets the count of failures
MAX_BACKOFF_SECONDS = 300.0
CRASH_LOOP_FAILURES = 3


class ReplicaPhase(IntEnum):
    """The state of a replica; a higher value is preferred."""

    TERMINAL = 0
    UNHEALTHY = 1
    WAITING = 2  # in the queue
    STARTING = 3
    HEALTHY = 4


@dataclass(frozen=True, slots=True)
class ReplicaSnapshot:
    """The observed state of a replica."""

    job_id: JobId
    generation: int
    phase: ReplicaPhase
    is_draining: bool = False
    may_stop: bool = False  # it is draining and has no open requests


@dataclass(frozen=True, slots=True)
class DesiredReplicas:
    count: int
    generation: int
    surge: int = 1
    may_start: bool = True  # False: waits for the backoff after a failure


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    close: tuple[JobId, ...] = ()  # ended replicas, to be recorded
    drain: tuple[JobId, ...] = ()
    stop: tuple[JobId, ...] = ()
    start_count: int = 0

    def __bool__(self) -> bool:
        return bool(self.close or self.drain or self.stop or self.start_count)


def plan_replicas(desired: DesiredReplicas, replicas: Sequence[ReplicaSnapshot]) -> ReplicaPlan:
    live = [replica for replica in replicas if replica.phase is not ReplicaPhase.TERMINAL]
    counted = [replica for replica in live if not replica.is_draining]
    useful = [replica for replica in counted if replica.phase is not ReplicaPhase.UNHEALTHY]
    new = _best([replica for replica in useful if replica.generation == desired.generation], desired.count)
    old = _kept_old([replica for replica in useful if replica.generation != desired.generation], new, desired)
    new = _best(new, desired.count + desired.surge - len(old))
    kept = {replica.job_id for replica in (*new, *old)}
    return ReplicaPlan(
        close=tuple(replica.job_id for replica in replicas if replica.phase is ReplicaPhase.TERMINAL),
        drain=tuple(replica.job_id for replica in counted if replica.job_id not in kept),
        stop=tuple(replica.job_id for replica in live if replica.is_draining and replica.may_stop),
        start_count=_start_count(desired, len(new), len(old)),
    )


def _best(replicas: Sequence[ReplicaSnapshot], limit: int) -> list[ReplicaSnapshot]:
    """The replicas with the highest phase, the oldest first."""
    return sorted(replicas, key=lambda replica: (-replica.phase, replica.job_id))[:limit]


def _kept_old(
    old: Sequence[ReplicaSnapshot], new: Sequence[ReplicaSnapshot], desired: DesiredReplicas
) -> list[ReplicaSnapshot]:
    """Healthy old replicas that are still needed."""
    healthy = [replica for replica in old if replica.phase is ReplicaPhase.HEALTHY]
    ready = sum(replica.phase is ReplicaPhase.HEALTHY for replica in new)
    one_less = not desired.surge and ready < desired.count
    return _best(healthy, max(0, desired.count - ready - one_less))


def _start_count(desired: DesiredReplicas, new: int, old: int) -> int:
    capacity = desired.count + (desired.surge if old else 0) - new - old
    return max(0, min(desired.count - new, capacity)) if desired.may_start else 0


def desired_replicas_of(service: Service, now: datetime) -> DesiredReplicas:
    may_start = service.retry_at is None or service.retry_at <= now
    return DesiredReplicas(service.desired_replicas, service.generation, service.surge, may_start)


@dataclass(frozen=True, slots=True)
class ReplicaFailure:
    """The failure of one replica."""

    failed_at: datetime
    created_at: datetime  # of the replica
    healthy_at: datetime | None
    reason: str


def service_changes_after_failure(service: Service, failure: ReplicaFailure) -> dict[str, object]:
    """Changes to the service. A replica created before the last failure belongs to that failure."""
    if service.failed_at is not None and failure.created_at <= service.failed_at:
        return {"problem": failure.reason}
    stable_since = failure.failed_at - timedelta(seconds=STABLE_SECONDS)
    was_stable = failure.healthy_at is not None and failure.healthy_at <= stable_since
    failures = 1 if was_stable else service.failures + 1
    retry_at = failure.failed_at + timedelta(seconds=backoff_seconds(failures))
    return {"failures": failures, "failed_at": failure.failed_at, "problem": failure.reason, "retry_at": retry_at}


def backoff_seconds(failures: int) -> float:
    """1, 2, 4… up to MAX_BACKOFF_SECONDS."""
    return min(MAX_BACKOFF_SECONDS, 2.0 ** min(failures - 1, 20))
