"""The relays that are up: one for each attempt whose ports somebody uses, started when the first does."""

import asyncio
import contextlib
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TookTooLong
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
_MOST_OF_ONE, _MOST_LOOKS = 3, 16
_MOST_SEEN = 10_000
_HOST = "127.0.0.1"  # of the job's own machine
_MOST_SOCKETS, _LONGEST_NUMBER = 16, 20
_LISTEN_HINT = "Start a server in the job first; it must listen on 127.0.0.1 or on all addresses."


class ResponseReader(asyncio.Protocol):
    """`data` is there once the connection is closed, or `most` bytes or the first line have come."""

    transport: asyncio.Transport

    def __init__(self, most: int, *, first_line: bool = False) -> None:
        self.data: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._most, self._first_line = most, first_line
        self._got = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._got += data[: self._most - len(self._got)]
        if len(self._got) >= self._most or (self._first_line and b"\n" in self._got):
            self._tell()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tell()

    def _tell(self) -> None:
        if not self.data.done():
            self.data.set_result(bytes(self._got))


@dataclass(frozen=True, slots=True)
class RelayTiming:
    idle_seconds: float = 120.0  # after which a relay that nobody uses is ended
    idle_check_seconds: float = 15.0
    retry_seconds: float = 3.0  # after one that did not start


_TIMING = RelayTiming()


@dataclass
class _Kept:
    """The relay of one attempt."""

    starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    link: RelayLink | None = None
    failed: str = ""
    failed_at: float = -math.inf


class RelayPool:
    """Lives on the event loop it is attached to; `check` is for all other threads."""

    def __init__(self, inside: Callable[[Attempt], ExecCommand], timing: RelayTiming = _TIMING) -> None:
        """`inside` says what to start. Raises Conflict or Refused."""
        self._inside, self._timing = inside, timing
        self._kept: dict[AttemptId, _Kept] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._seen: dict[tuple[AttemptId, int], ListeningSocket] = {}
        self._starters = ThreadPoolExecutor(_STARTERS, "relay")  # Slurm may take its time
        self._looking: Counter[str] = Counter()  # users, in threads that wait
        self._lock = threading.Lock()

    def attach(self) -> None:
        """To the loop that runs now."""
        self._loop = asyncio.get_running_loop()
        self._sweeping = self._loop.create_task(self._sweep())

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._loop = None
        self._starters.shutdown(wait=False, cancel_futures=True)
        links = [kept.link for kept in self._kept.values() if kept.link is not None]
        for link in links:
            link.stop("Heliostat stops")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await asyncio.gather(*(link.wait_closed() for link in links))

    async def open(self, attempt: Attempt, port: int, protocol: Callable[[], P]) -> P:
        """A connection to this port, once it is proven that the attempt listens there. Raises Conflict or
        EngineUnavailable."""
        return await self._said_kindly(attempt, port, lambda link: link.open(port, protocol))

    async def check_async(self, attempt: Attempt, port: int) -> ListeningSocket:
        """Whether it listens there. Raises Conflict or EngineUnavailable."""
        proof = await self._said_kindly(attempt, port, lambda link: link.check(port))
        found = ListeningSocket(_HOST, port, _sockets(proof))
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()
        self._seen[attempt.id, port] = found
        return found

    def check(self, attempt: Attempt, port: int, *, again: bool = True) -> ListeningSocket:
        """As `look`, from any other thread. Unless `again`, what was seen once still counts."""
        if not again and (attempt.id, port) in self._seen:
            return self._seen[attempt.id, port]
        with self._turn(attempt.job.user):
            return self._from_a_thread(self.check_async(attempt, port), attempt, _CHECK_SECONDS)

    def exchange(
        self, endpoint: "RelayEndpoint", request: bytes, seconds: float, answer: Callable[[], ResponseReader]
    ) -> bytes:
        """From any other thread. Whoever asks sees to it that not too many threads do."""
        asking = self._exchange(endpoint, request, answer)
        return self._from_a_thread(asking, endpoint.attempt, seconds)

    async def _exchange(
        self, endpoint: "RelayEndpoint", request: bytes, answer: Callable[[], ResponseReader]
    ) -> bytes:
        talk = await self.open(endpoint.attempt, endpoint.port, answer)
        try:
            if not request:
                return b""
            talk.transport.write(request)
            return await talk.data
        finally:
            talk.transport.abort()

    def _from_a_thread(self, asking: Coroutine[object, object, T], attempt: Attempt, seconds: float) -> T:
        if self._loop is None:
            asking.close()
            raise EngineUnavailable("The proxy does not run.", "See the server's log.")
        asked = asyncio.run_coroutine_threadsafe(asking, self._loop)
        try:
            return asked.result(seconds)
        except TookTooLong:
            asked.cancel()
            said = f"The node of job {attempt.job.id} gives no answer."
            raise EngineUnavailable(said, "Try again.") from None

    @contextlib.contextmanager
    def _turn(self, user: str) -> Iterator[None]:
        """A relay is its user's own and may keep us waiting: never too many threads at once."""
        with self._lock:
            if self._looking[user] >= _MOST_OF_ONE or self._looking.total() >= _MOST_LOOKS:
                raise TooManyRequests("Many are looking for ports at this moment.", "Ask again in a few seconds.")
            self._looking[user] += 1
        try:
            yield
        finally:
            with self._lock:
                self._looking[user] -= 1

    async def _said_kindly(
        self, attempt: Attempt, port: int, ask: Callable[[RelayLink], Coroutine[object, object, T]]
    ) -> T:
        try:
            return await self._ask(attempt, ask)
        except PortNotListening as error:
            said = f"Job {attempt.job.id}: {error}."
            raise Conflict(said, _LISTEN_HINT, code="not_listening") from error
        except PortUnreachable as error:
            said = f"Port {port} of job {attempt.job.id} does not answer: {error}."
            raise EngineUnavailable(said, "Look at the job's log.") from error
        except RelayLost as error:
            said = f"The node of job {attempt.job.id} cannot be reached: {error}."
            raise EngineUnavailable(said, "Try again in a moment; `helio doctor` examines Slurm.") from error

    async def _ask(self, attempt: Attempt, ask: Callable[[RelayLink], Coroutine[object, object, T]]) -> T:
        """Of one that was up before it may turn out only now that it is gone."""
        link, was_up = await self._link(attempt)
        try:
            return await ask(link)
        except RelayLost:
            if not was_up:
                raise
        return await ask((await self._link(attempt))[0])

    async def _link(self, attempt: Attempt) -> tuple[RelayLink, bool]:
        """And whether it was up before."""
        kept = self._kept.setdefault(attempt.id, _Kept())
        async with kept.starting:
            if kept.link is not None and not kept.link.is_lost:
                return kept.link, True
            if time.monotonic() - kept.failed_at < self._timing.retry_seconds:
                raise RelayLost(kept.failed)
            try:
                kept.link = await self._start(attempt)
            except RelayLost as error:
                kept.failed, kept.failed_at = str(error), time.monotonic()
                raise
            self._kept[attempt.id] = kept
            return kept.link, False

    async def _start(self, attempt: Attempt) -> RelayLink:
        loop = asyncio.get_running_loop()
        try:
            inside = await loop.run_in_executor(self._starters, self._inside, attempt)
        except AttemptRefused as error:
            raise Conflict(
                f"The ports of job {attempt.job.id} cannot be reached: {error}.",
                f"See `helio show {attempt.job.id}`; try again when it runs.",
            ) from error
        try:
            link = await RelayLink.start(inside)
        finally:
            await loop.run_in_executor(self._starters, inside.close)
        log.info("relay_started", attempt=attempt.id)
        return link

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._timing.idle_check_seconds)
            self.stop_idle()

    def stop_idle(self) -> None:
        """Ends what nobody uses; what has ended is forgotten."""
        now = time.monotonic()
        for attempt_id, kept in list(self._kept.items()):
            link = kept.link
            if link is not None and link.is_idle and now - link.last_used_at > self._timing.idle_seconds:
                link.stop("nobody uses it")
            if (link is None or link.is_lost) and not kept.starting.locked():
                del self._kept[attempt_id]


def _sockets(proof: str) -> tuple[int, ...]:
    """What a relay says: any text. Where it connects to is its own affair, on its own machine."""
    found = (one for one in proof.split()[1 : _MOST_SOCKETS + 1] if len(one) <= _LONGEST_NUMBER)
    return tuple(int(one) for one in found if one.isascii() and one.isdecimal())


@dataclass(frozen=True, slots=True)
class RelayEndpoint:
    """A port of an attempt on another machine. Who listens there is proven by the relay."""

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
