"""Answers of servers inside jobs, to what we ask ourselves: the first line, or all of it."""

import asyncio
from typing import cast

_LONGEST = 1000


class FirstLine(asyncio.Protocol):
    """`line` is there once the first line of the answer is, or its end; without what ends the line."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.line: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._data += data[:_LONGEST]
        if b"\n" in self._data or len(self._data) >= _LONGEST:
            self._tell()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tell()

    def _tell(self) -> None:
        if not self.line.done():
            self.line.set_result(self._data.split(b"\n")[0].rstrip())


class Whole(asyncio.Protocol):
    """`data` is there once the other end has closed the connection. What is longer than `most` is cut off."""

    transport: asyncio.Transport

    def __init__(self, most: int) -> None:
        self.data: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._most = most
        self._got = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._got += data[: self._most - len(self._got)]
        if len(self._got) >= self._most:
            self._tell()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tell()

    def _tell(self) -> None:
        if not self.data.done():
            self.data.set_result(bytes(self._got))
