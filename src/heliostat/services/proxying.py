"""What the proxy leads to: whose it is, who may go there, and where it listens, proven to be the job's."""

import contextlib
import http.client
import os
import socket
import stat
import threading
import time
from collections.abc import Container, Iterator
from dataclasses import dataclass

from heliostat.engines.contract import OpensPorts
from heliostat.engines.folders import JobFolder
from heliostat.errors import Conflict, Forbidden, NotFound, invalid_field
from heliostat.models import Attempt, Caller, Job, JobState, User
from heliostat.models.sessions import JUPYTER_APPS, MOST_PORT, Listening, Target
from heliostat.services.context import Context
from heliostat.store import jobs as stored
from heliostat.store.sessions import find_session, shared_with

_LEAST_PORT = 1024  # below it are the services of the system


@dataclass(frozen=True, slots=True)
class Way:
    """From the proxy to a server inside a running job."""

    target: Target
    attempt: Attempt
    people: Container[str]  # who may use it
    port: int
    keeps_prefix: bool = False  # the server inside knows where it stands
    authorization: str | None = None  # what it wants to see


def find_way(context: Context, target: Target) -> Way:
    """Raises NotFound or Conflict. Says nothing about who asks: `people` does."""
    job = _job(context, target)
    if job.state is not JobState.RUNNING:
        raise Conflict(f"Job {job.id} is {job.state}.", f"See `helio show {job.id}`.", code=f"job_{job.state}")
    if target.port is None:
        return _way_to_session(context, job, target)
    return Way(target, _attempt(job), people_of(context, job, target), target.port)


def _way_to_session(context: Context, job: Job, target: Target) -> Way:
    with context.store.read() as conn:
        session = find_session(conn, job.id)
    if session is None:
        raise NotFound(f"Job {job.id} is no session.", "Ask for one of its ports: helio port JOB PORT.")
    port = told_port(context, job)
    if port is None:
        raise Conflict("The session is starting.", "It opens in a moment.", code="session_starting")
    is_jupyter = session.app in JUPYTER_APPS
    shown = f"{'token' if is_jupyter else 'Bearer'} {session.secret}"
    people = people_of(context, job, target)
    return Way(target, _attempt(job), people, port, keeps_prefix=is_jupyter, authorization=shown)


def listening(context: Context, way: Way, *, again: bool = True) -> Listening:
    """Where it listens now. Raises Conflict unless a process of the job does, and nobody else.

    Unless `again`, what was seen once on another machine still counts: to look there takes a while.
    """
    engine = context.engine
    if context.relays is not None:
        return context.relays.check(way.attempt, way.port, again=again)
    if not isinstance(engine, OpensPorts):
        raise Conflict(
            f"The ports of jobs of the engine {engine.name} cannot be reached.",
            "Sessions, services and ports need the local engine or Slurm.",
        )
    return engine.listening(way.attempt, way.port)


def check_entry(context: Context, user: User, target: Target) -> Job:
    """The job, if this person may use the target. Not for managers and admins: they would act as somebody else."""
    job = _job(context, target)
    if user.name not in people_of(context, job, target):
        raise Forbidden(f"Job {job.id} is {job.user}'s.", f"Ask {job.user}.")
    return job


def people_of(context: Context, job: Job, target: Target) -> frozenset[str]:
    """Its owner; and whom a session is shared with, where it has an origin of its own."""
    if target.port is not None or not context.addresses.has_own_hosts:
        return frozenset({job.user})
    with context.store.read() as conn:
        return frozenset({job.user, *shared_with(conn, job.id)})


def open_port(context: Context, caller: Caller, job_id: int, port: int) -> Target:
    """A port of a running job of one's own, on which something listens."""
    if not _LEAST_PORT <= port <= MOST_PORT:
        raise invalid_field("port", f"must be a number from {_LEAST_PORT} to {MOST_PORT}")
    target = Target(job_id, port)
    check_entry(context, caller.user, target)
    listening(context, find_way(context, target))
    return target


def program_key(context: Context, caller: Caller, target: Target) -> tuple[str, str]:
    """A secret with which a program of the caller uses the target, and until when (ISO 8601)."""
    check_entry(context, caller.user, target)
    secret, until = context.identities.grants.for_program(caller.user.name, target)
    return secret, until.isoformat()


def entry_code(context: Context, user: User, target: Target, nonce_digest: str, login_id: int) -> str:
    """Takes a browser of this person over to the proxy, once."""
    check_entry(context, user, target)
    return context.identities.grants.new_code(user.name, target, nonce_digest, login_id)


def _job(context: Context, target: Target) -> Job:
    with context.store.read() as conn:
        job = stored.get_job(conn, target.job_id)
    if job is None:
        raise NotFound(f"There is no job {target.job_id}.", "`helio ps --all` lists your jobs.")
    return job


def _attempt(job: Job) -> Attempt:
    return Attempt(job.attempt_id, job, job.node or "", job.devices, job.places)


def told_port(context: Context, job: Job) -> int | None:
    """What the session says of its port. A file of its user: no link is followed, and it proves nothing.

    One that Slurm has put back into its queue still says it as the attempt it was submitted as.
    """
    folder = JobFolder.of(context.settings.home.jobs, job.id).checkpoints
    try:
        parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        attempts = range(job.attempt, 0 if context.relays is not None else job.attempt - 1, -1)
        found = (_port_in(parent, f".session-{attempt}") for attempt in attempts)
        return next((port for port in found if port is not None), None)
    finally:
        os.close(parent)


def _port_in(parent: int, name: str) -> int | None:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        text = file.read(16).strip() if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    return int(text) if text.isdigit() and 1024 <= int(text) <= 65535 else None


@contextlib.contextmanager
def proven_connection(context: Context, way: Way, seconds: float) -> Iterator[http.client.HTTPConnection]:
    """Never for a job on another machine. Raises HeliostatError, OSError (TimeoutError once the time is over)
    and what the body does."""
    if context.relays is not None:
        raise Conflict(
            f"Job {way.attempt.job.id} runs on another machine.", "Open its address through the proxy instead."
        )
    limit = _Limit(seconds)
    found = listening(context, way)
    connection = http.client.HTTPConnection(found.host, found.port, timeout=seconds)
    try:
        connection.connect()
        limit.begin(connection.sock)
        if listening(context, way) != found:
            raise Conflict("Who listens there has just changed.", "Try again in a moment.")
        yield connection
    except (OSError, http.client.HTTPException):
        limit.check()
        raise
    finally:
        limit.cancel()
        connection.close()
    limit.check()


class _Limit:
    """Hangs up when the time is over."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._timer: threading.Timer | None = None

    def begin(self, connection: socket.socket) -> None:
        left = max(0.0, self._deadline - time.monotonic())
        self._timer = threading.Timer(left, _hang_up, [connection])
        self._timer.daemon = True
        self._timer.start()

    def check(self) -> None:
        """Raises TimeoutError if it is: what was read then may be half of it."""
        if time.monotonic() >= self._deadline:
            raise TimeoutError("it did not answer in time")

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
