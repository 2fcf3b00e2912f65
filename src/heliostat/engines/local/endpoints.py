"""Local endpoints: verified connections to ports of jobs on this machine."""

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from heliostat.engines.local.port_ownership import PortOwnershipChecks
from heliostat.errors import Conflict, EngineUnavailable
from heliostat.models import Attempt
from heliostat.models.sessions import ListeningSocket

P = TypeVar("P", bound=asyncio.Protocol)
_CONNECT_SECONDS = 10.0
_PIECE_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class LocalEndpoint:
    """A port of an attempt on this machine. The server there belongs to the user and is not trusted."""

    ownership_checks: PortOwnershipChecks
    attempt: Attempt
    port: int

    def check(self, *, again: bool = True) -> ListeningSocket:
        del again  # a check is cheap here
        return self.ownership_checks.find(self.attempt, self.port)

    async def open(self, protocol: Callable[[], P]) -> P:
        before = await self.ownership_checks.find_async(self.attempt, self.port)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                transport, connected = await loop.create_connection(protocol, before.host, before.port)
        except (OSError, TimeoutError) as error:
            message = f"Port {self.port} of job {self.attempt.job.id} does not answer: {error}."
            raise EngineUnavailable(message, "See the job's log.") from error
        try:
            if await self.ownership_checks.find_async(self.attempt, self.port) != before:
                raise _changed()
        except BaseException:
            transport.abort()
            raise
        return connected

    def exchange(self, request: bytes, seconds: float, most_bytes: int, *, first_line: bool = False) -> bytes:
        deadline = time.monotonic() + seconds
        before = self.check()
        with socket.create_connection((before.host, before.port), timeout=seconds) as connection:
            if self.check() != before:
                raise _changed()
            if not request:
                return b""
            connection.sendall(request)
            data = bytearray()
            while len(data) < most_bytes and not (first_line and b"\n" in data):
                if not (piece := _receive(connection, most_bytes - len(data), deadline)):
                    break
                data += piece
            return bytes(data)


def _receive(connection: socket.socket, most_bytes: int, deadline: float) -> bytes:
    """Enforces the deadline even if the server sends slowly."""
    try:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        piece = connection.recv(min(_PIECE_BYTES, most_bytes))
    except TimeoutError:
        piece = None
    if piece is None or time.monotonic() >= deadline:
        raise TimeoutError("no answer in time")
    return piece


def _changed() -> Conflict:
    return Conflict("The listening process has just changed.", "Try again.", code="not_listening")
