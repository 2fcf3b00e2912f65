"""As much of an answer as tells whether all is well."""

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
