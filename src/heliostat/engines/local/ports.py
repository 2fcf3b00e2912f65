"""Where a port of a job on this machine is reached, and the proof that it is the job's."""

from collections.abc import Iterable

from heliostat.engines.local.listeners import CannotAsk, listeners
from heliostat.models.sessions import Listening
from heliostat.payloads.port_owners import NotListening, find_held, read_listeners

__all__ = ["NotListening", "find_listening"]


def find_listening(port: int, pids: Iterable[int]) -> Listening:
    """On the loopback, held by one of these processes. Raises NotListening."""
    held = find_held(port, pids, look=_listeners)
    return Listening(held.host, port, held.sockets)


def _listeners(port: int) -> list[tuple[str, int]]:
    try:
        return listeners(port)
    except CannotAsk:
        return read_listeners(port)
