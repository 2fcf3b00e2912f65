"""Looks who listens, in threads of its own: a job with very many open files makes that slow, for its user only."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from heliostat.errors import EngineUnavailable
from heliostat.models import Attempt
from heliostat.models.sessions import Listening

MOST_OF_ONE = 2  # at once, of the jobs of one user
_AT_ONCE = 16
_TURN_SECONDS = 30.0


class OwnershipChecks:
    """Whether a process of an attempt listens on a port, and nobody else does."""

    def __init__(self, find: Callable[[Attempt, int], Listening], turn_seconds: float = _TURN_SECONDS) -> None:
        """`find` raises Conflict."""
        self.find, self._turn_seconds = find, turn_seconds
        self._threads = ThreadPoolExecutor(_AT_ONCE, "port-check")
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(MOST_OF_ONE))

    async def listening(self, attempt: Attempt, port: int) -> Listening:
        """Where it listens now, on the one event loop that asks. Raises Conflict or EngineUnavailable."""
        turn = self._turns[attempt.job.user]
        try:
            async with asyncio.timeout(self._turn_seconds):
                await turn.acquire()
        except TimeoutError:
            said = f"It takes too long to see who listens on port {port} of job {attempt.job.id}."
            raise EngineUnavailable(said, "Its processes may have very many files open: close some.") from None
        loop = asyncio.get_running_loop()

        def give_back(_: Future[Listening]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is over
                loop.call_soon_threadsafe(turn.release)

        try:
            work = self._threads.submit(self.find, attempt, port)
        except RuntimeError as error:
            turn.release()
            raise EngineUnavailable("The proxy stops.", "Try again in a moment.") from error
        work.add_done_callback(give_back)  # when the thread is free, not when nobody waits any more
        return await asyncio.wrap_future(work)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
