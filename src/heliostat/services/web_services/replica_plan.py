"""From what a service should be and what there is of it to what is to be done. Pure: no clock, no disk.

A replica goes in two steps: it is drained (no new requests), and stopped once its open ones are answered. One
that drains counts no more. While a service is updated there are at most `surge` replicas more than wanted, and an
old one that works goes only when as many work as are wanted; without a surge, one fewer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum

from heliostat.models import JobId
from heliostat.models.services import Service

STABLE_SECONDS = 60.0  # a replica that was healthy for so long had nothing to do with an earlier failure
MAX_BACKOFF_SECONDS = 300.0
CRASH_LOOP_FAILURES = 3


class ReplicaPhase(IntEnum):
    """Where a replica is in its life; the higher, the more useful."""

    TERMINAL = 0
    UNHEALTHY = 1
    WAITING = 2  # in the queue
    STARTING = 3
    HEALTHY = 4


@dataclass(frozen=True, slots=True)
class ReplicaSnapshot:
    """A replica as it is found."""

    job_id: JobId
    generation: int
    phase: ReplicaPhase
    is_draining: bool = False
    may_stop: bool = False  # it drains, and nobody waits for an answer of it any more


@dataclass(frozen=True, slots=True)
class DesiredReplicas:
    count: int
    generation: int
    surge: int = 1
    may_start: bool = True  # it is not waiting to try again


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    close: tuple[JobId, ...] = ()  # they are over: what became of them is noted, and they count no more
    drain: tuple[JobId, ...] = ()
    stop: tuple[JobId, ...] = ()
    start_count: int = 0

    def __bool__(self) -> bool:
        return bool(self.close or self.drain or self.stop or self.start_count)


def plan_replicas(wanted: DesiredReplicas, seen: Sequence[ReplicaSnapshot]) -> ReplicaPlan:
    live = [one for one in seen if one.phase is not ReplicaPhase.TERMINAL]
    counted = [one for one in live if not one.is_draining]
    useful = [one for one in counted if one.phase is not ReplicaPhase.UNHEALTHY]
    new = _best([one for one in useful if one.generation == wanted.generation], wanted.count)
    old = _kept_old([one for one in useful if one.generation != wanted.generation], new, wanted)
    new = _best(new, wanted.count + wanted.surge - len(old))
    kept = {one.job_id for one in (*new, *old)}
    return ReplicaPlan(
        close=tuple(one.job_id for one in seen if one.phase is ReplicaPhase.TERMINAL),
        drain=tuple(one.job_id for one in counted if one.job_id not in kept),
        stop=tuple(one.job_id for one in live if one.is_draining and one.may_stop),
        start_count=_starts(wanted, len(new), len(old)),
    )


def _best(replicas: Sequence[ReplicaSnapshot], most: int) -> list[ReplicaSnapshot]:
    """The most useful; of those the oldest."""
    return sorted(replicas, key=lambda one: (-one.phase, one.job_id))[:most]


def _kept_old(
    old: Sequence[ReplicaSnapshot], new: Sequence[ReplicaSnapshot], wanted: DesiredReplicas
) -> list[ReplicaSnapshot]:
    """Those that work and are still needed. What does not work yet is of no use to anybody."""
    working = [one for one in old if one.phase is ReplicaPhase.HEALTHY]
    ready = sum(one.phase is ReplicaPhase.HEALTHY for one in new)
    gives_way = not wanted.surge and ready < wanted.count
    return _best(working, max(0, wanted.count - ready - gives_way))


def _starts(wanted: DesiredReplicas, new: int, old: int) -> int:
    room = wanted.count + (wanted.surge if old else 0) - new - old
    return max(0, min(wanted.count - new, room)) if wanted.may_start else 0


def desired_replicas_of(service: Service, now: datetime) -> DesiredReplicas:
    may_start = service.retry_at is None or service.retry_at <= now
    return DesiredReplicas(service.desired_replicas, service.generation, service.surge, may_start)


@dataclass(frozen=True, slots=True)
class ReplicaFailure:
    """Of one replica."""

    failed_at: datetime
    created_at: datetime  # of the replica
    healthy_at: datetime | None
    reason: str


def service_changes_after_failure(service: Service, failure: ReplicaFailure) -> dict[str, object]:
    """What changes of the service. Replicas that were there at an earlier failure failed together with it."""
    if service.failed_at is not None and failure.created_at <= service.failed_at:
        return {"problem": failure.reason}
    steady_since = failure.failed_at - timedelta(seconds=STABLE_SECONDS)
    was_steady = failure.healthy_at is not None and failure.healthy_at <= steady_since
    failures = 1 if was_steady else service.failures + 1
    retry_at = failure.failed_at + timedelta(seconds=backoff_seconds(failures))
    return {"failures": failures, "failed_at": failure.failed_at, "problem": failure.reason, "retry_at": retry_at}


def backoff_seconds(failures: int) -> float:
    """1, 2, 4… and never more than five minutes."""
    return min(MAX_BACKOFF_SECONDS, 2.0 ** min(failures - 1, 20))
