"""Where a port of a job on this machine is reached, and the proof that it is the job's."""

from collections.abc import Iterable

from heliostat.engines.relay.listeners import NotListening, find_held
from heliostat.models.sessions import Listening

__all__ = ["NotListening", "find_listening"]


def find_listening(port: int, pids: Iterable[int]) -> Listening:
    """On the loopback, held by one of these processes. Raises NotListening."""
    held = find_held(port, pids)
    return Listening(held.host, port, held.sockets)
