"""Connections to servers inside jobs of this machine, each proven to be the job's before anything is said there.

The server is its user's own and may be anything: one deadline holds for the whole talk, however slowly it drips.
"""

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator

from heliostat.errors import Conflict
from heliostat.services.context import Context
from heliostat.services.proxying import Way, listening


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
