"""Relay pool: one relay per attempt, started at the first connection to a port and stopped when idle."""

import asyncio
import contextlib
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, cast

from heliostat.engines.exec import ExecCommand
from heliostat.engines.job_folders import AttemptRefused
from heliostat.engines.relay.link import PortNotListening, PortUnreachable, RelayLink, RelayLost
from heliostat.errors import Conflict, EngineUnavailable, TooManyRequests
from heliostat.models import Attempt, AttemptId
from heliostat.models.sessions import ListeningSocket
from heliostat.server_log import get_logger

log = get_logger()
T = TypeVar("T")
P = TypeVar("P", bound=asyncio.Protocol)
_CHECK_SECONDS = 40.0
_STOP_SECONDS = 2.0
_STARTERS = 4
_MAX_CHECKS_PER_USER, _MAX_CHECKS = 3, 16  # concurrent
_MAX_CACHED = 10_000
_HOST = "127.0.0.1"  # on the job's node
_MOST_SOCKETS, _LONGEST_NUMBER = 16, 20
_LISTEN_HINT = "Start a server in the job first; it must listen on 127.0.0.1 or on all addresses."


class ResponseReader(asyncio.Protocol):
    """`data` is set once the connection is closed, or `most` bytes or the first line were received."""

    transport: asyncio.Transport

    def __init__(self, most: int, *, first_line: bool = False) -> None:
        self.data: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._most, self._first_line = most, first_line
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data[: self._most - len(self._received)]
        if len(self._received) >= self._most or (self._first_line and b"\n" in self._received):
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish()

    def _finish(self) -> None:
        if not self.data.done():
            self.data.set_result(bytes(self._received))


@dataclass(frozen=True, slots=True)
class RelayTiming:
    idle_seconds: float = 120.0  # after which an unused relay is stopped
    idle_check_seconds: float = 15.0
    retry_seconds: float = 3.0  # after a failed start


_TIMING = RelayTiming()


@dataclass
class _Relay:
    """The relay of one attempt."""

    starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    link: RelayLink | None = None
    failed: str = ""
    failed_at: float = -math.inf


class RelayPool:
    """Bound to the event loop it is attached to; `check` and `exchange` are for all other threads."""

    def __init__(self, make_command: Callable[[Attempt], ExecCommand], timing: RelayTiming = _TIMING) -> None:
        """`make_command` returns the program to start. It may raise Conflict or AttemptRefused."""
        self._make_command, self._timing = make_command, timing
        self._relays: dict[AttemptId, _Relay] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._cached: dict[tuple[AttemptId, int], ListeningSocket] = {}
        self._starters = ThreadPoolExecutor(_STARTERS, "relay")  # Slurm may be slow
        self._checks: Counter[str] = Counter()  # by user, of waiting threads
        self._lock = threading.Lock()

    def attach(self) -> None:
        """Use the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._sweeping = self._loop.create_task(self._sweep())

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._loop = None
        self._starters.shutdown(wait=False, cancel_futures=True)
        links = [relay.link for relay in self._relays.values() if relay.link is not None]
        for link in links:
            link.stop("Heliostat is stopping")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await asyncio.gather(*(link.wait_closed() for link in links))

    async def open(self, attempt: Attempt, port: int, protocol: Callable[[], P]) -> P:
        """A connection to this port, after verifying that the attempt listens there. Raises Conflict or
        EngineUnavailable."""
        return await self._call(attempt, port, lambda link: link.open(port, protocol))

    async def check_async(self, attempt: Attempt, port: int) -> ListeningSocket:
        """Whether it listens there. Raises Conflict or EngineUnavailable."""
        proof = await self._call(attempt, port, lambda link: link.check(port))
        listening = ListeningSocket(_HOST, port, _sockets(proof))
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        self._cached[attempt.id, port] = listening
        return listening

    def check(self, attempt: Attempt, port: int, *, again: bool = True) -> ListeningSocket:
        """As `check_async`, from any other thread. Without `again`, a cached result is returned."""
        if not again and (attempt.id, port) in self._cached:
            return self._cached[attempt.id, port]
        with self._limit_checks(attempt.job.user):
            return self._from_a_thread(self.check_async(attempt, port), attempt, _CHECK_SECONDS)

    def exchange(
        self, endpoint: "RelayEndpoint", request: bytes, seconds: float, answer: Callable[[], ResponseReader]
    ) -> bytes:
        """From any other thread. The caller limits the number of threads."""
        return self._from_a_thread(self._exchange(endpoint, request, answer), endpoint.attempt, seconds)

    async def _exchange(
        self, endpoint: "RelayEndpoint", request: bytes, answer: Callable[[], ResponseReader]
    ) -> bytes:
        reader = await self.open(endpoint.attempt, endpoint.port, answer)
        try:
            if not request:
                return b""
            reader.transport.write(request)
            return await reader.data
        finally:
            reader.transport.abort()

    def _from_a_thread(self, work: Coroutine[object, object, T], attempt: Attempt, seconds: float) -> T:
        if self._loop is None:
            work.close()
            raise EngineUnavailable("The proxy is not running.", "See the server's log.")
        pending = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return pending.result(seconds)
        except FutureTimeout:
            pending.cancel()
            message = f"The node of job {attempt.job.id} does not answer."
            raise EngineUnavailable(message, "Try again.") from None

    @contextlib.contextmanager
    def _limit_checks(self, user: str) -> Iterator[None]:
        """A relay belongs to its user and may be slow: limit the number of waiting threads."""
        with self._lock:
            if self._checks[user] >= _MAX_CHECKS_PER_USER or self._checks.total() >= _MAX_CHECKS:
                raise TooManyRequests("Too many concurrent port checks.", "Try again in a few seconds.")
            self._checks[user] += 1
        try:
            yield
        finally:
            with self._lock:
                self._checks[user] -= 1

    async def _call(
        self, attempt: Attempt, port: int, request: Callable[[RelayLink], Coroutine[object, object, T]]
    ) -> T:
        """Translates errors of the relay. Raises Conflict or EngineUnavailable."""
        try:
            return await self._call_link(attempt, request)
        except PortNotListening as error:
            message = f"Job {attempt.job.id}: {error}."
            raise Conflict(message, _LISTEN_HINT, code="not_listening") from error
        except PortUnreachable as error:
            message = f"Port {port} of job {attempt.job.id} does not answer: {error}."
            raise EngineUnavailable(message, "See the job's log.") from error
        except RelayLost as error:
            message = f"The node of job {attempt.job.id} cannot be reached: {error}."
            raise EngineUnavailable(message, "Try again in a moment; `helio doctor` checks Slurm.") from error

    async def _call_link(
        self, attempt: Attempt, request: Callable[[RelayLink], Coroutine[object, object, T]]
    ) -> T:
        """Retried once if the relay was running before: its end may be noticed only now."""
        link, was_running = await self._link(attempt)
        try:
            return await request(link)
        except RelayLost:
            if not was_running:
                raise
        return await request((await self._link(attempt))[0])

    async def _link(self, attempt: Attempt) -> tuple[RelayLink, bool]:
        """The attempt's relay, started if needed, and whether it was running before."""
        relay = self._relays.setdefault(attempt.id, _Relay())
        async with relay.starting:
            if relay.link is not None and not relay.link.is_lost:
                return relay.link, True
            if time.monotonic() - relay.failed_at < self._timing.retry_seconds:
                raise RelayLost(relay.failed)
            try:
                relay.link = await self._start(attempt)
            except RelayLost as error:
                relay.failed, relay.failed_at = str(error), time.monotonic()
                raise
            self._relays[attempt.id] = relay
            return relay.link, False

    async def _start(self, attempt: Attempt) -> RelayLink:
        loop = asyncio.get_running_loop()
        try:
            command = await loop.run_in_executor(self._starters, self._make_command, attempt)
        except AttemptRefused as error:
            raise Conflict(
                f"The ports of job {attempt.job.id} cannot be reached: {error}.",
                f"See `helio show {attempt.job.id}`; try again when it runs.",
            ) from error
        try:
            link = await RelayLink.start(command)
        finally:
            await loop.run_in_executor(self._starters, command.close)
        log.info("relay_started", attempt=attempt.id)
        return link

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._timing.idle_check_seconds)
            self.stop_idle()

    def stop_idle(self) -> None:
        """Stop idle relays, and forget those that have ended."""
        now = time.monotonic()
        for attempt_id, relay in list(self._relays.items()):
            link = relay.link
            if link is not None and link.is_idle and now - link.last_used_at > self._timing.idle_seconds:
                link.stop("it was idle")
            if (link is None or link.is_lost) and not relay.starting.locked():
                del self._relays[attempt_id]


def _sockets(proof: str) -> tuple[int, ...]:
    """Socket inodes in the answer of a relay, which is not trusted. Its address is ignored."""
    words = (word for word in proof.split()[1 : _MOST_SOCKETS + 1] if len(word) <= _LONGEST_NUMBER)
    return tuple(int(word) for word in words if word.isascii() and word.isdecimal())


@dataclass(frozen=True, slots=True)
class RelayEndpoint:
    """A port of an attempt on another node. The relay verifies that the attempt listens there."""

    relay_pool: RelayPool
    attempt: Attempt
    port: int

    def check(self, *, again: bool = True) -> ListeningSocket:
        return self.relay_pool.check(self.attempt, self.port, again=again)

    async def open(self, protocol: Callable[[], P]) -> P:
        return await self.relay_pool.open(self.attempt, self.port, protocol)

    def exchange(self, request: bytes, seconds: float, most_bytes: int, *, first_line: bool = False) -> bytes:
        answer = partial(ResponseReader, most_bytes, first_line=first_line)
        return self.relay_pool.exchange(self, request, seconds, answer)
