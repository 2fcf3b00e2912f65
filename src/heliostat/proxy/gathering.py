"""What is written to a browser in one go leaves in one go: the head of an answer and its body wake it once."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MOST_JOINED = 64 * 1024  # to copy more costs more than another call of the kernel


class GatheringProtocol(HttpToolsProtocol):
    """The HTTP server of the proxy."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(Gathering(transport, self.loop))

    def on_response_complete(self) -> None:
        if isinstance(self.transport, Gathering):
            self.transport.flush()
        super().on_response_complete()

    def handle_websocket_upgrade(self) -> None:
        if isinstance(self.transport, Gathering):
            self.transport = self.transport.bare()  # a tunnel has nothing to gather
        super().handle_websocket_upgrade()


class Gathering(asyncio.Transport):
    """A transport that sends what was written when whoever writes has to wait, or has written enough."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held: list[bytes] = []
        self._held_bytes = 0

    def write(self, data: Any) -> None:
        if self._held_bytes + len(data) > _MOST_JOINED:
            self.flush()
            self._transport.write(data)
            return
        if not self._held:
            self._loop.call_soon(self.flush)
        self._held.append(data)
        self._held_bytes += len(data)

    def bare(self) -> asyncio.Transport:
        self.flush()
        return self._transport

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        self._held.clear()
        self._held_bytes = 0
        self._transport.abort()

    def flush(self) -> None:
        if self._held:
            data = self._held[0] if len(self._held) == 1 else b"".join(self._held)
            self._held.clear()
            self._held_bytes = 0
            self._transport.write(data)

    # --- as it is

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._transport.get_protocol()
