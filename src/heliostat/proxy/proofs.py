"""Looks who listens, in threads of its own: a job with very many open files makes that slow, for its user only."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from heliostat.errors import EngineUnavailable
from heliostat.models.sessions import Listening
from heliostat.services.proxying import Way

MOST_OF_ONE = 2  # at once, of the jobs of one user
_AT_ONCE = 16
_TURN_SECONDS = 30.0


class Proofs:
    """Lives on one event loop."""

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
