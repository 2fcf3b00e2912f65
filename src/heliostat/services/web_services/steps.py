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

STEADY_SECONDS = 60.0  # a replica that was healthy for so long had nothing to do with an earlier failure
MOST_BACK_OFF_SECONDS = 300.0
CRASH_LOOP = 3


class Phase(IntEnum):
    """Where a replica is in its life; the higher, the more useful."""

    OVER = 0
    UNHEALTHY = 1
    WAITING = 2  # in the queue
    STARTING = 3
    HEALTHY = 4


@dataclass(frozen=True, slots=True)
class Seen:
    """A replica as it is found."""

    job_id: JobId
    generation: int
    phase: Phase
    is_draining: bool = False
    may_stop: bool = False  # it drains, and nobody waits for an answer of it any more


@dataclass(frozen=True, slots=True)
class Wanted:
    replicas: int
    generation: int
    surge: int = 1
    may_start: bool = True  # it is not waiting to try again


@dataclass(frozen=True, slots=True)
class Steps:
    close: tuple[JobId, ...] = ()  # they are over: what became of them is noted, and they count no more
    drain: tuple[JobId, ...] = ()
    stop: tuple[JobId, ...] = ()
    start: int = 0

    def __bool__(self) -> bool:
        return bool(self.close or self.drain or self.stop or self.start)


def steps(wanted: Wanted, seen: Sequence[Seen]) -> Steps:
    live = [one for one in seen if one.phase is not Phase.OVER]
    counted = [one for one in live if not one.is_draining]
    useful = [one for one in counted if one.phase is not Phase.UNHEALTHY]
    new = _best([one for one in useful if one.generation == wanted.generation], wanted.replicas)
    old = _kept_old([one for one in useful if one.generation != wanted.generation], new, wanted)
    new = _best(new, wanted.replicas + wanted.surge - len(old))
    kept = {one.job_id for one in (*new, *old)}
    return Steps(
        close=tuple(one.job_id for one in seen if one.phase is Phase.OVER),
        drain=tuple(one.job_id for one in counted if one.job_id not in kept),
        stop=tuple(one.job_id for one in live if one.is_draining and one.may_stop),
        start=_starts(wanted, len(new), len(old)),
    )


def _best(replicas: Sequence[Seen], most: int) -> list[Seen]:
    """The most useful; of those the oldest."""
    return sorted(replicas, key=lambda one: (-one.phase, one.job_id))[:most]


def _kept_old(old: Sequence[Seen], new: Sequence[Seen], wanted: Wanted) -> list[Seen]:
    """Those that work and are still needed. What does not work yet is of no use to anybody."""
    working = [one for one in old if one.phase is Phase.HEALTHY]
    ready = sum(one.phase is Phase.HEALTHY for one in new)
    gives_way = not wanted.surge and ready < wanted.replicas
    return _best(working, max(0, wanted.replicas - ready - gives_way))


def _starts(wanted: Wanted, new: int, old: int) -> int:
    room = wanted.replicas + (wanted.surge if old else 0) - new - old
    return max(0, min(wanted.replicas - new, room)) if wanted.may_start else 0


def wanted_of(service: Service, now: datetime) -> Wanted:
    may_start = service.retry_at is None or service.retry_at <= now
    return Wanted(service.wanted, service.generation, service.surge, may_start)


@dataclass(frozen=True, slots=True)
class Failure:
    """Of one replica."""

    at: datetime
    created_at: datetime  # of the replica
    healthy_at: datetime | None
    why: str


def after_failure(service: Service, failure: Failure) -> dict[str, object]:
    """What changes of the service. Replicas that were there at an earlier failure failed together with it."""
    if service.failed_at is not None and failure.created_at <= service.failed_at:
        return {"problem": failure.why}
    steady_since = failure.at - timedelta(seconds=STEADY_SECONDS)
    was_steady = failure.healthy_at is not None and failure.healthy_at <= steady_since
    failures = 1 if was_steady else service.failures + 1
    retry_at = failure.at + timedelta(seconds=back_off_seconds(failures))
    return {"failures": failures, "failed_at": failure.at, "problem": failure.why, "retry_at": retry_at}


def back_off_seconds(failures: int) -> float:
    """1, 2, 4… and never more than five minutes."""
    return min(MOST_BACK_OFF_SECONDS, 2.0 ** min(failures - 1, 20))
