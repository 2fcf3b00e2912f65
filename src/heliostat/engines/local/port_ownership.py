"""Port ownership on this machine: checks that the process listening on a port belongs to the job."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from heliostat.errors import EngineUnavailable
from heliostat.models import Attempt
from heliostat.models.sessions import ListeningSocket
from heliostat.payloads.port_listeners import NotListening, find_port_sockets, read_proc_listeners
from heliostat.socket_queries import NetlinkUnavailable, query_listeners

MAX_CHECKS_PER_USER = 2  # concurrent, for all jobs of one user
_MAX_CHECKS = 16
_WAIT_SECONDS = 30.0

__all__ = ["NotListening", "PortOwnershipChecks", "find_listening"]


class PortOwnershipChecks:
    """Checks, in threads, that only processes of an attempt listen on a port. Checks are limited per user: a job
    with very many open files makes them slow, but only for its own user."""

    def __init__(
        self, find: Callable[[Attempt, int], ListeningSocket], wait_seconds: float = _WAIT_SECONDS
    ) -> None:
        """`find` may raise Conflict."""
        self.find, self._wait_seconds = find, wait_seconds
        self._threads = ThreadPoolExecutor(_MAX_CHECKS, "port-check")
        self._slots: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(MAX_CHECKS_PER_USER)
        )

    async def find_async(self, attempt: Attempt, port: int) -> ListeningSocket:
        """Where it listens now. Always called on the same event loop. Raises Conflict or EngineUnavailable."""
        slot = self._slots[attempt.job.user]
        try:
            async with asyncio.timeout(self._wait_seconds):
                await slot.acquire()
        except TimeoutError:
            message = f"Checking port {port} of job {attempt.job.id} takes too long."
            raise EngineUnavailable(message, "Its processes may have too many open files: close some.") from None
        loop = asyncio.get_running_loop()

        def release(_: Future[ListeningSocket]) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(slot.release)

        try:
            work = self._threads.submit(self.find, attempt, port)
        except RuntimeError as error:
            slot.release()
            raise EngineUnavailable("The proxy is stopping.", "Try again in a moment.") from error
        work.add_done_callback(release)  # when the thread is free, even if the caller was cancelled
        return await asyncio.wrap_future(work)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def find_listening(port: int, pids: Iterable[int]) -> ListeningSocket:
    """The socket on the loopback that is held by one of these processes. Raises NotListening."""
    held = find_port_sockets(port, pids, list_listeners=_listeners)
    return ListeningSocket(held.host, port, held.sockets)


def _listeners(port: int) -> list[tuple[str, int]]:
    try:
        return query_listeners(port)
    except NetlinkUnavailable:
        return read_proc_listeners(port)
