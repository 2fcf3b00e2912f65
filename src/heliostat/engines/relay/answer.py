"""What a server inside a job answers to what we ask it ourselves."""

import asyncio
from typing import cast


class Answer(asyncio.Protocol):
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
