"""Relay protocol: frames that multiplex many connections over one byte stream, with flow control.

A frame has a kind, a connection number and up to 64 kB of payload. Per connection, neither end sends more bytes
than the receive window of the other: WINDOW_BYTES, refilled by CREDIT. So a slow connection never blocks the
others.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

HELLO = b"\0heliostat relay 1\n"  # sent first by the end inside the job
OPEN, CHECK = 1, 2  # to the job: connect to this port; only check whether the job listens there
OPENED, REFUSED, FAILED = 3, 4, 5  # from the job: listening sockets; the job does not listen there; no answer
DATA, EOF, CREDIT, CLOSE = 6, 7, 8, 9  # both directions
WINDOW_BYTES = 256 * 1024
MAX_FRAME_DATA_BYTES = 32 * 1024  # in one frame
MAX_CONNECTIONS = 400  # of one relay
_MIN_CREDIT_BYTES = WINDOW_BYTES // 4
_HEAD = struct.Struct(">BIH")
_PORT, _CREDIT = struct.Struct(">H"), struct.Struct(">I")


class BadFrame(Exception):
    """The other end violates the protocol."""


class Frame(NamedTuple):
    kind: int
    connection: int
    payload: bytes = b""

    @property
    def number(self) -> int:
        """The payload of OPEN and CHECK (a port) or CREDIT (a byte count). Raises BadFrame."""
        shape = _CREDIT if self.kind == CREDIT else _PORT
        if len(self.payload) != shape.size:
            raise BadFrame(f"frame of kind {self.kind} with {len(self.payload)} bytes")
        number: int = shape.unpack(self.payload)[0]
        return number


def encode_frame(kind: int, connection: int, payload: bytes = b"") -> bytes:
    return _HEAD.pack(kind, connection, len(payload)) + payload


def encode_port_frame(kind: int, connection: int, port: int) -> bytes:
    return encode_frame(kind, connection, _PORT.pack(port))


def encode_credit_frame(connection: int, count: int) -> bytes:
    return encode_frame(CREDIT, connection, _CREDIT.pack(count))


def encode_data_frames(connection: int, data: bytes) -> bytes:
    """Split into frames of at most MAX_FRAME_DATA_BYTES."""
    parts = [data[at : at + MAX_FRAME_DATA_BYTES] for at in range(0, len(data), MAX_FRAME_DATA_BYTES)]
    return b"".join([encode_frame(DATA, connection, part) for part in parts])


class FrameReader:
    """Turns a byte stream into frames."""

    def __init__(self) -> None:
        self._buffered = b""

    def feed(self, data: bytes) -> list[Frame]:
        """Raises BadFrame."""
        data, at, result = self._buffered + data, 0, []
        while len(data) - at >= _HEAD.size:
            kind, connection, length = _HEAD.unpack_from(data, at)
            if not OPEN <= kind <= CLOSE:
                raise BadFrame(f"unknown frame kind {kind}")
            end = at + _HEAD.size + length
            if len(data) < end:
                break
            result.append(Frame(kind, connection, data[at + _HEAD.size : end]))
            at = end
        self._buffered = data[at:]
        return result


class SendWindow:
    """Send side of a connection: sends within the window, buffers the rest, then sends EOF or CLOSE."""

    def __init__(self, connection: int, send: Callable[[bytes], None]) -> None:
        self._connection, self._send = connection, send
        self._credit = WINDOW_BYTES
        self._buffer = bytearray()
        self._is_held = False
        self._last: list[int] = []

    @property
    def buffered_bytes(self) -> int:
        return len(self._buffer)

    def write(self, data: bytes) -> None:
        if not self._last:
            self._buffer += data
            self._flush()

    def add_credit(self, frame: Frame) -> None:
        """The other end has consumed so many bytes. Raises BadFrame."""
        self._credit += frame.number
        if not frame.number or self._credit > WINDOW_BYTES:
            raise BadFrame("credit exceeds the window")
        self._flush()

    def pause(self) -> None:
        """The stream is full: buffer what is written."""
        self._is_held = True

    def resume(self) -> None:
        self._is_held = False
        self._flush()

    def discard(self) -> None:
        """Drop buffered bytes."""
        self._buffer.clear()
        self._last.clear()

    def finish(self, kind: int) -> None:
        """Send EOF or CLOSE after the buffered bytes."""
        if kind not in self._last:
            self._last.append(kind)
            if not self._buffer:
                self._send(encode_frame(kind, self._connection))

    def _flush(self) -> None:
        size = min(self._credit, len(self._buffer))
        if not size or self._is_held:
            return
        part = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._credit -= size
        self._send(encode_data_frames(self._connection, part))
        if not self._buffer:
            for kind in self._last:
                self._send(encode_frame(kind, self._connection))


class ReceiveWindow:
    """Receive side of a connection: checks the window and grants credit."""

    def __init__(self, connection: int, send: Callable[[bytes], None]) -> None:
        self._connection, self._send = connection, send
        self._window = WINDOW_BYTES
        self._consumed = 0  # not granted as credit yet

    def receive(self, size: int) -> None:
        """Raises BadFrame when the data is empty or exceeds the window."""
        if not size:
            raise BadFrame("empty data frame")
        self._window -= size
        if self._window < 0:
            raise BadFrame("data exceeds the window")

    def release(self, size: int) -> None:
        """So many bytes were consumed."""
        self._consumed += size
        if self._consumed >= _MIN_CREDIT_BYTES:
            self._window += self._consumed
            self._send(encode_credit_frame(self._connection, self._consumed))
            self._consumed = 0
