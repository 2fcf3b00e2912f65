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
from heliostat.models.services import Health, HealthCheck, Replica, Service
from heliostat.models.sessions import Target
from heliostat.services.context import Context, programs
from heliostat.services.job_http import get_status
from heliostat.services.proxying import Way, endpoint

Verdict = tuple[Health, str]
Look = Callable[[Context, Service, Job], str]
_EARLY_SECONDS = 0.5  # between two looks at one that has not answered yet
_LONGEST_PROBLEM = 200
_GRID_SECONDS = 0.5

MOST_OF_ONE = 4  # looks at once, at the servers of one person


def look_at(context: Context, service: Service, job: Job) -> str:
    """Empty: it answers as it should; else what is wrong."""
    attempt = Attempt(job.attempt_id, job, job.node or "", job.devices, job.places)
    port = programs(context).session_port(attempt)
    if port is None:
        return "it has not told its port yet"
    way = Way(Target(0, service=service.name), attempt, frozenset(), port)
    try:
        return _ask(endpoint(context, way), service)
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
    return _problem(check, get_status(there, check.path, _headers(service), check.timeout_seconds))


@dataclass(slots=True)
class _Watch:
    job_id: JobId
    user: str  # whose service it is
    due_at: float = 0.0  # on the steady clock
    failed: int = 0  # in a row
    looking: Future[str] | None = field(default=None)


class Looks:
    """At all replicas, now and then; each look in a thread of its owner's. Used by one thread only."""

    def __init__(self, look: Look = look_at, wake: Callable[[], None] = lambda: None) -> None:
        self._look, self.wake = look, wake
        self._lanes = ThreadsPerUser()
        self._watches: dict[str, _Watch] = {}

    def close(self, *, wait: bool = False) -> None:
        self._lanes.close(wait=wait)

    def look(self, context: Context, service: Service, replica: Replica, job: Job) -> Verdict | None:
        """What changed of its health since it was last written; looks again when it is time."""
        watch = self._watches.setdefault(job.attempt_id, _Watch(job.id, service.user))
        verdict = None
        if watch.looking is not None and watch.looking.done():
            problem = _result(watch.looking)
            watch.looking = None
            watch.failed = watch.failed + 1 if problem else 0
            verdict = judged(service, replica, job, Outcome(problem, watch.failed, context.now()))
        if watch.looking is None and time.monotonic() >= watch.due_at and replica.draining_at is None:
            answers = replica.is_healthy(job.attempt) or verdict == (Health.HEALTHY, "")
            self._begin(watch, answers, partial(self._look, context, service, job), service.check)
        return verdict

    def _begin(self, watch: _Watch, answers: bool, look: Callable[[], str], check: HealthCheck) -> None:
        """All is well, as before, is no news: that is seen when the next look is due."""
        pause = check.interval_seconds if answers else min(check.interval_seconds, _EARLY_SECONDS)
        watch.due_at = together(time.monotonic() + pause)
        watch.looking = self._lanes.submit(watch.user, look)
        watch.looking.add_done_callback(lambda done: None if answers and not _result(done) else self.wake())

    def seconds_until_due(self, attempts: Collection[str]) -> float:
        """Until one of these is to be looked at again."""
        now = time.monotonic()
        due = [one.due_at - now for key, one in self._watches.items() if key in attempts]
        return max(0.05, min(due, default=60.0))

    def forget_others(self, jobs: Collection[JobId]) -> None:
        self._watches = {key: one for key, one in self._watches.items() if one.job_id in jobs}
        self._lanes.keep({one.user for one in self._watches.values()})


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a look."""

    problem: str  # empty: all is well
    failed: int  # looks in a row, with this one
    at: datetime


def judged(service: Service, replica: Replica, job: Job, outcome: Outcome) -> Verdict | None:
    """What one look changes. An unhealthy one stays so: it is replaced."""
    problem, failed = outcome.problem, outcome.failed
    known = replica.health if replica.attempt == job.attempt else Health.STARTING
    if known is Health.UNHEALTHY or replica.draining_at is not None:
        return None
    if not problem:
        return None if known is Health.HEALTHY else (Health.HEALTHY, "")
    if known is Health.HEALTHY:
        if failed < service.check.threshold:
            return None
        return Health.UNHEALTHY, f"it did not answer {failed} times in a row: {problem}"
    grace = service.check.grace_seconds
    waited = (outcome.at - (job.started_at or replica.created_at)).total_seconds()
    if waited <= grace:
        return None
    return Health.UNHEALTHY, f"it was not healthy within {grace:g} seconds: {problem}"


def together(at: float) -> float:
    """Looks that are due at about the same time are due at the same time: one round for all."""
    return math.ceil(at / _GRID_SECONDS) * _GRID_SECONDS


def _result(looking: "Future[str]") -> str:
    if looking.cancelled():
        return ""
    error = looking.exception()
    return looking.result() if error is None else f"it could not be looked at: {error}"[:_LONGEST_PROBLEM]


class ThreadsPerUser:
    """A few for each person: whose servers are slow delays only their own looks. They begin when they are needed
    and end with the last server of their person. Used by one thread only."""

    def __init__(self) -> None:
        self._lanes: dict[str, ThreadPoolExecutor] = {}

    def submit(self, user: str, look: Callable[[], str]) -> "Future[str]":
        if user not in self._lanes:
            self._lanes[user] = ThreadPoolExecutor(MOST_OF_ONE, thread_name_prefix="health")
        return self._lanes[user].submit(look)

    def keep(self, users: Collection[str]) -> None:
        """Only those of these people. A look that is under way ends by its own deadline; nobody waits for it."""
        for user in self._lanes.keys() - set(users):
            self._lanes.pop(user).shutdown(wait=False, cancel_futures=True)

    def close(self, *, wait: bool = False) -> None:
        for lane in self._lanes.values():
            lane.shutdown(wait=wait, cancel_futures=True)
        self._lanes.clear()
