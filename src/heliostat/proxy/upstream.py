"""HTTP/1.1 to a server inside a job: what is sent and read goes on as it comes, byte for byte."""

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

_HIGH_BYTES = 512 * 1024  # read ahead of a slow browser, before the server inside has to wait
_LONGEST_HEAD = 256 * 1024
_NO_BODY = frozenset({204, 304})

_MOST_BYTES = 1 << 20
_AT_ONCE = 65536


class UpstreamDisconnected(Exception):
    """It went away, or does not speak HTTP, before its answer was complete."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The beginning of an answer."""

    status: int
    headers: list[Header]


def encode_request_head(method: bytes, path: bytes, headers: Iterable[Header]) -> bytes:
    lines = [b"%b %b HTTP/1.1\r\n" % (method, path), *(b"%b: %b\r\n" % pair for pair in headers), b"\r\n"]
    return b"".join(lines)


class UpstreamConnection(asyncio.Protocol):
    """One request at a time. After a complete answer `is_reusable` says whether it takes another."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._news = asyncio.Event()
        self._last_words = UnreadResponse()
        self.is_disconnected = False
        self._error: str | None = None
        self.begin_request(b"")

    def begin_request(self, method: bytes) -> None:
        """A request follows, and nothing is known of its answer."""
        self._method = method
        self._headers: list[Header] = []
        self._head: ResponseHead | None = None
        self._parts: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._head_bytes = 0
        self._is_complete = False
        self._keeps_open = True

    # --- what the proxy asks for

    async def write(self, data: bytes) -> None:
        """Waits while the server inside does not read."""
        if self._transport is None or self.is_disconnected:
            raise UpstreamDisconnected(self._error or "it has closed the connection")
        self._transport.write(data)
        await self._may_write.wait()

    def write_nowait(self, data: bytes) -> None:
        """Little enough not to wait for."""
        if self._transport is None or self.is_disconnected:
            raise UpstreamDisconnected(self._error or "it has closed the connection")
        self._transport.write(data)

    def keep_unread_response(self) -> None:
        """It may answer and hang up while we still send."""
        if self._transport is not None:
            self._last_words.keep_socket(self._transport)

    async def read_head(self) -> ResponseHead:
        while self._head is None:
            await self._next()
        return self._head

    async def wait_for_small_body(self, most: int) -> None:
        """Until the answer is complete, if it says that it is short."""
        head = await self.read_head()
        lengths = [value for name, value in head.headers if name == b"content-length"]
        if lengths and lengths[0].isdigit() and int(lengths[0]) <= most:
            while not self._is_complete:
                await self._next()

    async def read_body_part(self) -> bytes:
        """What has come of the body since the last; empty at its end."""
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
        """Something of an answer came."""
        return self._head_bytes > 0

    def close(self) -> None:
        self._keeps_open = False
        if self._transport is not None:
            self._transport.abort()

    async def _next(self) -> None:
        if self._error is not None or self.is_disconnected:
            raise UpstreamDisconnected(self._error or "it has closed the connection")
        self._news.clear()
        await self._news.wait()

    # --- what the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._is_complete:
            self._keeps_open = False  # nobody has asked for more
            return
        if self._head is None:
            self._head_bytes += len(data)
            if self._head_bytes > _LONGEST_HEAD + _HIGH_BYTES:
                self._fail("its answer begins with too many headers")
                return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self._is_complete:
                self._fail(f"what it says is not HTTP: {error}"[:200])
        self._news.set()

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        for data in self._last_words.read_remaining():
            self.data_received(data)
        if self._head is not None and not self._is_complete and self._ends_with_connection(self._head):
            self._is_complete, self._keeps_open = True, False
        self.is_disconnected = True
        self._may_write.set()
        self._news.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    # --- what the parser tells

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._is_complete:
            self._keeps_open = False
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._headers = []  # "go on" was for us; the answer is still to come
            return
        self._head = ResponseHead(status, self._headers)
        self._keeps_open = self._parser.should_keep_alive()
        if self._method == b"HEAD":
            self._is_complete, self._keeps_open = True, False  # its length is that of a body that does not come

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
        self._news.set()

    @staticmethod
    def _ends_with_connection(head: ResponseHead) -> bool:
        names = {name for name, _ in head.headers}
        chunked = b"transfer-encoding" in names
        return not chunked and b"content-length" not in names and head.status not in _NO_BODY


class UnreadResponse:
    """What a server said on one connection before it hung up on whoever was still talking to it.

    The kernel keeps it, but an event loop that fails to write closes the socket unread. A second descriptor of the
    same socket lets it be heard.
    """

    def __init__(self) -> None:
        self._kept: socket.socket | None = None

    def keep_socket(self, transport: asyncio.BaseTransport) -> None:
        """From now on, until `heard`. A connection that has no socket of its own loses no words."""
        seen = transport.get_extra_info("socket")
        if self._kept is None and seen is not None and seen.fileno() >= 0:
            with contextlib.suppress(OSError):  # no descriptor is left: the request itself needs none
                self._kept = socket.socket(fileno=os.dup(seen.fileno()))

    def read_remaining(self) -> Iterator[bytes]:
        """Nobody else reads from it any more."""
        kept, self._kept = self._kept, None
        if kept is None:
            return
        left = _MOST_BYTES
        with kept:
            while left > 0:
                part = _read(kept)
                if not part:
                    return
                left -= len(part)
                yield part


def _read(kept: socket.socket) -> bytes:
    try:
        return kept.recv(_AT_ONCE, socket.MSG_DONTWAIT)
    except OSError:
        return b""
