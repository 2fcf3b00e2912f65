"""Looks at replicas: do they answer? With the same proof of whose port it is as the proxy wants."""

import http.client
import math
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from heliostat.engines.contract import Endpoint
from heliostat.errors import HeliostatError
from heliostat.models import Attempt, Job, JobId
from heliostat.models.services import HealthCheck, Replica, ReplicaHealth, Service
from heliostat.models.sessions import ProxyTarget
from heliostat.services.context import Context, require_program_engine
from heliostat.services.job_http import http_get_status
from heliostat.services.proxy_routes import ProxyRoute, route_endpoint

HealthChange = tuple[ReplicaHealth, str]
ProbeFunction = Callable[[Context, Service, Job], str]
_EARLY_SECONDS = 0.5  # between two looks at one that has not answered yet
_LONGEST_PROBLEM = 200
_GRID_SECONDS = 0.5

MAX_PROBES_PER_USER = 4  # looks at once, at the servers of one person


def probe_replica(context: Context, service: Service, job: Job) -> str:
    """Empty: it answers as it should; else what is wrong."""
    attempt = Attempt(job.attempt_id, job, job.node or "", job.devices, job.places)
    port = require_program_engine(context).session_port(attempt)
    if port is None:
        return "it has not told its port yet"
    way = ProxyRoute(ProxyTarget(0, service=service.name), attempt, frozenset(), port)
    try:
        return _ask(route_endpoint(context, way), service)
    except HeliostatError as error:
        return error.message[:_LONGEST_PROBLEM]
    except (OSError, http.client.HTTPException) as error:
        return f"port {port}: {error or type(error).__name__}"[:_LONGEST_PROBLEM]


def _headers(service: Service) -> dict[str, str]:
    return {"Authorization": f"Bearer {service.secret}", "User-Agent": "heliostat"}


def _problem(check: HealthCheck, status: int) -> str:
    return "" if 200 <= status < 400 else f"GET {check.path} answers {status or 'no HTTP'}"[:_LONGEST_PROBLEM]


def _ask(there: Endpoint, service: Service) -> str:
    check = service.check
    if check.path is None:
        there.exchange(b"", check.timeout_seconds, 0)
        return ""
    return _problem(check, http_get_status(there, check.path, _headers(service), check.timeout_seconds))


@dataclass(slots=True)
class _Watch:
    job_id: JobId
    user: str  # whose service it is
    due_at: float = 0.0  # on the steady clock
    failed: int = 0  # in a row
    looking: Future[str] | None = field(default=None)


class HealthProber:
    """At all replicas, now and then; each look in a thread of its owner's. Used by one thread only."""

    def __init__(self, look: ProbeFunction = probe_replica, wake: Callable[[], None] = lambda: None) -> None:
        self._look, self.wake = look, wake
        self._lanes = ProbePool()
        self._watches: dict[str, _Watch] = {}

    def close(self, *, wait: bool = False) -> None:
        self._lanes.close(wait=wait)

    def poll_replica(self, context: Context, service: Service, replica: Replica, job: Job) -> HealthChange | None:
        """What changed of its health since it was last written; looks again when it is time."""
        watch = self._watches.setdefault(job.attempt_id, _Watch(job.id, service.user))
        verdict = None
        if watch.looking is not None and watch.looking.done():
            problem = _result(watch.looking)
            watch.looking = None
            watch.failed = watch.failed + 1 if problem else 0
            verdict = evaluate_health(
                service, replica, job, HealthProbeResult(problem, watch.failed, context.now())
            )
        if watch.looking is None and time.monotonic() >= watch.due_at and replica.draining_at is None:
            answers = replica.is_healthy(job.attempt) or verdict == (ReplicaHealth.HEALTHY, "")
            self._begin(watch, answers, partial(self._look, context, service, job), service.check)
        return verdict

    def _begin(self, watch: _Watch, answers: bool, look: Callable[[], str], check: HealthCheck) -> None:
        """All is well, as before, is no news: that is seen when the next look is due."""
        pause = check.interval_seconds if answers else min(check.interval_seconds, _EARLY_SECONDS)
        watch.due_at = round_up_due_time(time.monotonic() + pause)
        watch.looking = self._lanes.submit(watch.user, look)
        watch.looking.add_done_callback(lambda done: None if answers and not _result(done) else self.wake())

    def seconds_until_next_probe(self, attempts: Collection[str]) -> float:
        """Until one of these is to be looked at again."""
        now = time.monotonic()
        due = [one.due_at - now for key, one in self._watches.items() if key in attempts]
        return max(0.05, min(due, default=60.0))

    def keep_only(self, jobs: Collection[JobId]) -> None:
        self._watches = {key: one for key, one in self._watches.items() if one.job_id in jobs}
        self._lanes.keep_users({one.user for one in self._watches.values()})


@dataclass(frozen=True, slots=True)
class HealthProbeResult:
    """Of a look."""

    problem: str  # empty: all is well
    consecutive_failures: int  # looks in a row, with this one
    observed_at: datetime


def evaluate_health(
    service: Service, replica: Replica, job: Job, outcome: HealthProbeResult
) -> HealthChange | None:
    """What one look changes. An unhealthy one stays so: it is replaced."""
    problem, failed = outcome.problem, outcome.consecutive_failures
    known = replica.health if replica.attempt == job.attempt else ReplicaHealth.STARTING
    if known is ReplicaHealth.UNHEALTHY or replica.draining_at is not None:
        return None
    if not problem:
        return None if known is ReplicaHealth.HEALTHY else (ReplicaHealth.HEALTHY, "")
    if known is ReplicaHealth.HEALTHY:
        if failed < service.check.threshold:
            return None
        return ReplicaHealth.UNHEALTHY, f"it did not answer {failed} times in a row: {problem}"
    grace = service.check.grace_seconds
    waited = (outcome.observed_at - (job.started_at or replica.created_at)).total_seconds()
    if waited <= grace:
        return None
    return ReplicaHealth.UNHEALTHY, f"it was not healthy within {grace:g} seconds: {problem}"


def round_up_due_time(at: float) -> float:
    """Looks that are due at about the same time are due at the same time: one round for all."""
    return math.ceil(at / _GRID_SECONDS) * _GRID_SECONDS


def _result(looking: "Future[str]") -> str:
    if looking.cancelled():
        return ""
    error = looking.exception()
    return looking.result() if error is None else f"it could not be looked at: {error}"[:_LONGEST_PROBLEM]


class ProbePool:
    """A few for each person: whose servers are slow delays only their own looks. They begin when they are needed
    and end with the last server of their person. Used by one thread only."""

    def __init__(self) -> None:
        self._lanes: dict[str, ThreadPoolExecutor] = {}

    def submit(self, user: str, look: Callable[[], str]) -> "Future[str]":
        if user not in self._lanes:
            self._lanes[user] = ThreadPoolExecutor(MAX_PROBES_PER_USER, thread_name_prefix="health")
        return self._lanes[user].submit(look)

    def keep_users(self, users: Collection[str]) -> None:
        """Only those of these people. A look that is under way ends by its own deadline; nobody waits for it."""
        for user in self._lanes.keys() - set(users):
            self._lanes.pop(user).shutdown(wait=False, cancel_futures=True)

    def close(self, *, wait: bool = False) -> None:
        for lane in self._lanes.values():
            lane.shutdown(wait=wait, cancel_futures=True)
        self._lanes.clear()
