"""Health checks of service replicas. The port is verified to belong to the replica's job, as in the proxy."""

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
_STARTING_INTERVAL_SECONDS = 0.5  # between two probes of a replica that has not responded yet
_MAX_PROBLEM_LENGTH = 200
_GRID_SECONDS = 0.5

MAX_PROBES_PER_USER = 4  # concurrent probes of one user's replicas


def probe_replica(context: Context, service: Service, job: Job) -> str:
    """The problem; empty: the replica responds as expected."""
    attempt = Attempt(job.attempt_id, job, job.node or "", job.devices, job.places)
    port = require_program_engine(context).session_port(attempt)
    if port is None:
        return "it has not reported its port yet"
    route = ProxyRoute(ProxyTarget(0, service=service.name), attempt, frozenset(), port)
    try:
        return _probe(route_endpoint(context, route), service)
    except HeliostatError as error:
        return error.message[:_MAX_PROBLEM_LENGTH]
    except (OSError, http.client.HTTPException) as error:
        return f"port {port}: {error or type(error).__name__}"[:_MAX_PROBLEM_LENGTH]


def _headers(service: Service) -> dict[str, str]:
    return {"Authorization": f"Bearer {service.secret}", "User-Agent": "heliostat"}


def _problem(check: HealthCheck, status: int) -> str:
    return (
        ""
        if 200 <= status < 400
        else f"GET {check.path} returns {status or 'no HTTP response'}"[:_MAX_PROBLEM_LENGTH]
    )


def _probe(endpoint: Endpoint, service: Service) -> str:
    check = service.check
    if check.path is None:
        endpoint.exchange(b"", check.timeout_seconds, 0)
        return ""
    return _problem(check, http_get_status(endpoint, check.path, _headers(service), check.timeout_seconds))


@dataclass(slots=True)
class _ProbeState:
    job_id: JobId
    user: str  # owner of the service
    due_at: float = 0.0  # monotonic clock
    failed: int = 0  # consecutive failures
    probe: Future[str] | None = field(default=None)


class HealthProber:
    """Probes all replicas periodically, in a thread pool per owner. Used by one thread only."""

    def __init__(
        self, probe_function: ProbeFunction = probe_replica, wake: Callable[[], None] = lambda: None
    ) -> None:
        self._probe_function, self.wake = probe_function, wake
        self._pools = ProbePool()
        self._states: dict[str, _ProbeState] = {}

    def close(self, *, wait: bool = False) -> None:
        self._pools.close(wait=wait)

    def poll_replica(self, context: Context, service: Service, replica: Replica, job: Job) -> HealthChange | None:
        """The change of health since it was last stored; starts the next probe when it is due."""
        state = self._states.setdefault(job.attempt_id, _ProbeState(job.id, service.user))
        change = None
        if state.probe is not None and state.probe.done():
            problem = _result(state.probe)
            state.probe = None
            state.failed = state.failed + 1 if problem else 0
            change = evaluate_health(
                service, replica, job, HealthProbeResult(problem, state.failed, context.now())
            )
        if state.probe is None and time.monotonic() >= state.due_at and replica.draining_at is None:
            is_healthy = replica.is_healthy(job.attempt) or change == (ReplicaHealth.HEALTHY, "")
            self._start_probe(
                state, is_healthy, partial(self._probe_function, context, service, job), service.check
            )
        return change

    def _start_probe(
        self, state: _ProbeState, is_healthy: bool, probe_function: Callable[[], str], check: HealthCheck
    ) -> None:
        """Does not wake the loop for a success that changes nothing: the next poll collects it."""
        interval = (
            check.interval_seconds if is_healthy else min(check.interval_seconds, _STARTING_INTERVAL_SECONDS)
        )
        state.due_at = round_up_due_time(time.monotonic() + interval)
        state.probe = self._pools.submit(state.user, probe_function)
        state.probe.add_done_callback(lambda done: None if is_healthy and not _result(done) else self.wake())

    def seconds_until_next_probe(self, attempts: Collection[str]) -> float:
        """Until the next probe of one of these attempts is due."""
        now = time.monotonic()
        due = [state.due_at - now for key, state in self._states.items() if key in attempts]
        return max(0.05, min(due, default=60.0))

    def keep_only(self, jobs: Collection[JobId]) -> None:
        self._states = {key: state for key, state in self._states.items() if state.job_id in jobs}
        self._pools.keep_users({state.user for state in self._states.values()})


@dataclass(frozen=True, slots=True)
class HealthProbeResult:
    """The result of one probe."""

    problem: str  # empty: success
    consecutive_failures: int  # including this probe
    observed_at: datetime


def evaluate_health(
    service: Service, replica: Replica, job: Job, outcome: HealthProbeResult
) -> HealthChange | None:
    """The change of health by one probe; None: no change. An unhealthy replica stays unhealthy until it is
    replaced."""
    problem, failed = outcome.problem, outcome.consecutive_failures
    known = replica.health if replica.attempt == job.attempt else ReplicaHealth.STARTING
    if known is ReplicaHealth.UNHEALTHY or replica.draining_at is not None:
        return None
    if not problem:
        return None if known is ReplicaHealth.HEALTHY else (ReplicaHealth.HEALTHY, "")
    if known is ReplicaHealth.HEALTHY:
        if failed < service.check.threshold:
            return None
        return ReplicaHealth.UNHEALTHY, f"{failed} health checks in a row failed: {problem}"
    grace = service.check.grace_seconds
    waited = (outcome.observed_at - (job.started_at or replica.created_at)).total_seconds()
    if waited <= grace:
        return None
    return ReplicaHealth.UNHEALTHY, f"not healthy within {grace:g} seconds: {problem}"


def round_up_due_time(at: float) -> float:
    """Rounded up to a grid, so that probes due at about the same time start in one round."""
    return math.ceil(at / _GRID_SECONDS) * _GRID_SECONDS


def _result(probe: "Future[str]") -> str:
    if probe.cancelled():
        return ""
    error = probe.exception()
    return probe.result() if error is None else f"the probe failed: {error}"[:_MAX_PROBLEM_LENGTH]


class ProbePool:
    """A small thread pool per user, so that slow servers delay only probes of the same user. A pool starts when
    it is needed and ends with the user's last replica. Used by one thread only."""

    def __init__(self) -> None:
        self._pools: dict[str, ThreadPoolExecutor] = {}

    def submit(self, user: str, probe_function: Callable[[], str]) -> "Future[str]":
        if user not in self._pools:
            self._pools[user] = ThreadPoolExecutor(MAX_PROBES_PER_USER, thread_name_prefix="health")
        return self._pools[user].submit(probe_function)

    def keep_users(self, users: Collection[str]) -> None:
        """Close the pools of other users. A running probe ends by its own timeout; this call does not wait for
        it."""
        for user in self._pools.keys() - set(users):
            self._pools.pop(user).shutdown(wait=False, cancel_futures=True)

    def close(self, *, wait: bool = False) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=wait, cancel_futures=True)
        self._pools.clear()
