"""Connections to servers inside jobs, each proven to end in the job it was opened for."""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from heliostat.errors import Conflict, EngineUnavailable
from heliostat.models import AttemptId
from heliostat.models.sessions import Listening
from heliostat.proxy.upstream import Connection
from heliostat.services.context import Context
from heliostat.services.proxying import Way, listening

P = TypeVar("P", bound=asyncio.Protocol)
_Key = tuple[AttemptId, int]
_CONNECT_SECONDS = 10.0
_IDLE_SECONDS = 30.0
_MOST_IDLE = 64  # of one server

MOST_OF_ONE = 2  # at once, of the jobs of one user
_AT_ONCE = 16
_TURN_SECONDS = 30.0


class Pool:
    """Lives on one event loop."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._proofs = Proofs(lambda way: listening(context, way))
        self._idle: dict[_Key, list[tuple[float, Connection]]] = {}

    async def connection(self, way: Way, *, may_be_used: bool) -> tuple[Connection, bool]:
        """One to send a request on, and whether it was used before: then it may be closed by now."""
        kept = self._idle.get(_key(way), [])
        while may_be_used and kept:
            since, connection = kept.pop()
            if connection.is_reusable and time.monotonic() - since < _IDLE_SECONDS:
                return connection, True
            connection.close()
        return await self.open(way, Connection), False

    def give_back(self, way: Way, connection: Connection) -> None:
        kept = self._idle.setdefault(_key(way), [])
        if not connection.is_reusable or len(kept) >= _MOST_IDLE:
            connection.close()
            return
        kept.append((time.monotonic(), connection))
        self._drop_old()

    async def open(self, way: Way, protocol: Callable[[], P]) -> P:
        """Raises Conflict or EngineUnavailable."""
        if self._context.relays is not None:
            return await self._context.relays.open(way.attempt, way.port, protocol)
        before = await self._proofs.listening(way)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                transport, connected = await loop.create_connection(protocol, before.host, before.port)
        except (OSError, TimeoutError) as error:
            raise EngineUnavailable(
                f"Port {way.port} of job {way.target.job_id} does not answer: {error}.", "Look at the job's log."
            ) from error
        try:
            after = await self._proofs.listening(way)
            if after != before:
                raise Conflict("Who listens there has just changed.", "Try again.", code="not_listening")
        except BaseException:
            transport.abort()
            raise
        return connected

    def close(self) -> None:
        for kept in self._idle.values():
            for _, connection in kept:
                connection.close()
        self._idle.clear()
        self._proofs.close()

    def _drop_old(self) -> None:
        limit = time.monotonic() - _IDLE_SECONDS
        for key, kept in list(self._idle.items()):
            while kept and kept[0][0] < limit:
                kept.pop(0)[1].close()
            if not kept:
                with contextlib.suppress(KeyError):
                    del self._idle[key]


def _key(way: Way) -> _Key:
    return way.attempt.id, way.port


class Proofs:
    """Looks who listens, in threads of its own: a job with very many open files makes that slow, for its user
    only. Lives on one event loop."""

    def __init__(self, find: Callable[[Way], Listening], turn_seconds: float = _TURN_SECONDS) -> None:
        self._find, self._turn_seconds = find, turn_seconds
        self._threads = ThreadPoolExecutor(_AT_ONCE, "proof")
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(MOST_OF_ONE))

    async def listening(self, way: Way) -> Listening:
        """Where it listens now. Raises Conflict or EngineUnavailable."""
        turn = self._turns[way.attempt.job.user]
        try:
            async with asyncio.timeout(self._turn_seconds):
                await turn.acquire()
        except TimeoutError:
            said = f"It takes too long to see who listens on port {way.port} of job {way.attempt.job.id}."
            raise EngineUnavailable(said, "Its processes may have very many files open: close some.") from None
        loop = asyncio.get_running_loop()

        def give_back(_: Future[Listening]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is over
                loop.call_soon_threadsafe(turn.release)

        try:
            work = self._threads.submit(self._find, way)
        except RuntimeError as error:
            turn.release()
            raise EngineUnavailable("The proxy stops.", "Try again in a moment.") from error
        work.add_done_callback(give_back)  # when the thread is free, not when nobody waits any more
        return await asyncio.wrap_future(work)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
