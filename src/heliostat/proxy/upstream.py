"""HTTP/1.1 connection to a server in a job: bodies are streamed unchanged."""

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import httptools

from heliostat.proxy.headers import Header

_HIGH_BYTES = 512 * 1024  # read ahead of a slow browser before reading pauses
_MAX_HEAD_BYTES = 256 * 1024
_NO_BODY = frozenset({204, 304})

_MAX_UNREAD_BYTES = 1 << 20
_READ_BYTES = 65536


class UpstreamDisconnected(Exception):
    """The server closed the connection or sent invalid HTTP before its response was complete."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status and headers of a response."""

    status: int
    headers: list[Header]


def encode_request_head(method: bytes, path: bytes, headers: Iterable[Header]) -> bytes:
    lines = [b"%b %b HTTP/1.1\r\n" % (method, path), *(b"%b: %b\r\n" % pair for pair in headers), b"\r\n"]
    return b"".join(lines)


class UpstreamConnection(asyncio.Protocol):
    """One request at a time. After a complete response, `is_reusable` tells whether another may follow."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._has_data = asyncio.Event()
        self._unread_response = UnreadResponse()
        self.is_disconnected = False
        self._error: str | None = None
        self.begin_request(b"")

    def begin_request(self, method: bytes) -> None:
        """Reset the state for the next request."""
        self._method = method
        self._headers: list[Header] = []
        self._head: ResponseHead | None = None
        self._parts: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._head_bytes = 0
        self._is_complete = False
        self._keeps_open = True

    # --- used by the proxy

    async def write(self, data: bytes) -> None:
        """Waits while the server in the job does not read."""
        if self._transport is None or self.is_disconnected:
            raise UpstreamDisconnected(self._error or "it closed the connection")
        self._transport.write(data)
        await self._may_write.wait()

    def write_nowait(self, data: bytes) -> None:
        """For small data, without waiting."""
        if self._transport is None or self.is_disconnected:
            raise UpstreamDisconnected(self._error or "it closed the connection")
        self._transport.write(data)

    def keep_unread_response(self) -> None:
        """The server may respond and close the connection while the request is still being sent."""
        if self._transport is not None:
            self._unread_response.keep_socket(self._transport)

    async def read_head(self) -> ResponseHead:
        while self._head is None:
            await self._next()
        return self._head

    async def wait_for_small_body(self, max_bytes: int) -> None:
        """Wait for the complete response if its content-length is small."""
        head = await self.read_head()
        lengths = [value for name, value in head.headers if name == b"content-length"]
        if lengths and lengths[0].isdigit() and int(lengths[0]) <= max_bytes:
            while not self._is_complete:
                await self._next()

    async def read_body_part(self) -> bytes:
        """New data of the body; empty at the end."""
        while not self._parts:
            if self._is_complete:
                return b""
            await self._next()
        part = b"".join(self._parts) if len(self._parts) > 1 else self._parts[0]
        self._parts.clear()
        if self._waiting_bytes > _HIGH_BYTES:
            self._resume_reading()
        self._waiting_bytes = 0
        return part

    @property
    def is_complete(self) -> bool:
        return self._is_complete and not self._parts

    @property
    def is_reusable(self) -> bool:
        return self.is_complete and self._keeps_open and not self.is_disconnected and self._error is None

    @property
    def has_received_data(self) -> bool:
        """Whether any response data arrived."""
        return self._head_bytes > 0

    def close(self) -> None:
        self._keeps_open = False
        if self._transport is not None:
            self._transport.abort()

    async def _next(self) -> None:
        if self._error is not None or self.is_disconnected:
            raise UpstreamDisconnected(self._error or "it closed the connection")
        self._has_data.clear()
        await self._has_data.wait()

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._is_complete:
            self._keeps_open = False  # unexpected data after the response
            return
        if self._head is None:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES + _HIGH_BYTES:
                self._fail("its response headers are too long")
                return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self._is_complete:
                self._fail(f"its response is not valid HTTP: {error}"[:200])
        self._has_data.set()

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        for data in self._unread_response.read_remaining():
            self.data_received(data)
        if self._head is not None and not self._is_complete and self._ends_with_connection(self._head):
            self._is_complete, self._keeps_open = True, False
        self.is_disconnected = True
        self._may_write.set()
        self._has_data.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    # --- called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._is_complete:
            self._keeps_open = False
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._headers = []  # an interim response (1xx); the final one follows
            return
        self._head = ResponseHead(status, self._headers)
        self._keeps_open = self._parser.should_keep_alive()
        if self._method == b"HEAD":
            self._is_complete, self._keeps_open = True, False  # content-length without a body

    def on_body(self, body: bytes) -> None:
        if self._is_complete:
            return
        self._parts.append(body)
        self._waiting_bytes += len(body)
        if self._waiting_bytes > _HIGH_BYTES and self._transport is not None:
            with contextlib.suppress(RuntimeError):
                self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._head is not None:
            self._is_complete = True

    def _resume_reading(self) -> None:
        if self._transport is not None and not self.is_disconnected:
            with contextlib.suppress(RuntimeError):
                self._transport.resume_reading()

    def _fail(self, why: str) -> None:
        self._error = why
        self.close()
        self._has_data.set()

    @staticmethod
    def _ends_with_connection(head: ResponseHead) -> bool:
        names = {name for name, _ in head.headers}
        chunked = b"transfer-encoding" in names
        return not chunked and b"content-length" not in names and head.status not in _NO_BODY


class UnreadResponse:
    """The response of a server that closed the connection while the request was still being sent.

    The kernel keeps the data, but an event loop that fails to write closes the socket without reading it. A second
    descriptor of the same socket makes it readable.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def keep_socket(self, transport: asyncio.BaseTransport) -> None:
        """Until `read_remaining`. Does nothing for a transport without a socket."""
        original = transport.get_extra_info("socket")
        if self._socket is None and original is not None and original.fileno() >= 0:
            with contextlib.suppress(OSError):  # no free descriptor: the request works without it
                self._socket = socket.socket(fileno=os.dup(original.fileno()))

    def read_remaining(self) -> Iterator[bytes]:
        """The unread data, after the event loop has closed its descriptor."""
        duplicate, self._socket = self._socket, None
        if duplicate is None:
            return
        left = _MAX_UNREAD_BYTES
        with duplicate:
            while left > 0:
                part = _read(duplicate)
                if not part:
                    return
                left -= len(part)
                yield part


def _read(connection: socket.socket) -> bytes:
    try:
        return connection.recv(_READ_BYTES, socket.MSG_DONTWAIT)
    except OSError:
        return b""
