"""What the two ends of a relay say to each other: frames of many connections on one stream of bytes.

A frame is a kind, the number of its connection, and up to 64 kB. Neither end sends more of a connection's bytes
than the other has room for: `WINDOW`, and what `CREDIT` adds. So a slow connection never holds up the others.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

HELLO = b"\0heliostat relay 1\n"  # the first word of the end inside the job
OPEN, CHECK = 1, 2  # to it: connect to this port; say only whether the job listens there
OPENED, REFUSED, FAILED = 3, 4, 5  # from it: who listens; the job does not listen there; it does not answer
DATA, EOF, CREDIT, CLOSE = 6, 7, 8, 9  # from both
WINDOW_BYTES = 256 * 1024
MAX_FRAME_DATA_BYTES = 32 * 1024  # in one frame
MAX_CONNECTIONS = 400  # of one relay
_WORTH_TELLING = WINDOW_BYTES // 4
_HEAD = struct.Struct(">BIH")
_PORT, _CREDIT = struct.Struct(">H"), struct.Struct(">I")


class BadFrame(Exception):
    """The other end says what it must not."""


class Frame(NamedTuple):
    kind: int
    connection: int
    payload: bytes = b""

    @property
    def number(self) -> int:
        """What OPEN, CHECK and CREDIT carry."""
        shape = _CREDIT if self.kind == CREDIT else _PORT
        if len(self.payload) != shape.size:
            raise BadFrame(f"a frame of kind {self.kind} has {len(self.payload)} bytes")
        number: int = shape.unpack(self.payload)[0]
        return number


def encode_frame(kind: int, connection: int, payload: bytes = b"") -> bytes:
    return _HEAD.pack(kind, connection, len(payload)) + payload


def encode_port_frame(kind: int, connection: int, port: int) -> bytes:
    return encode_frame(kind, connection, _PORT.pack(port))


def encode_credit_frame(connection: int, count: int) -> bytes:
    return encode_frame(CREDIT, connection, _CREDIT.pack(count))


def encode_data_frames(connection: int, data: bytes) -> bytes:
    """In as many frames as it needs."""
    parts = [data[at : at + MAX_FRAME_DATA_BYTES] for at in range(0, len(data), MAX_FRAME_DATA_BYTES)]
    return b"".join([encode_frame(DATA, connection, part) for part in parts])


class FrameReader:
    """Bytes in, as they come; whole frames out."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        """Raises BadFrame."""
        data, at, found = self._rest + data, 0, []
        while len(data) - at >= _HEAD.size:
            kind, connection, length = _HEAD.unpack_from(data, at)
            if not OPEN <= kind <= CLOSE:
                raise BadFrame(f"there is no kind {kind}")
            end = at + _HEAD.size + length
            if len(data) < end:
                break
            found.append(Frame(kind, connection, data[at + _HEAD.size : end]))
            at = end
        self._rest = data[at:]
        return found


class SendWindow:
    """What one end sends: as much as the other has room for, the rest when it has, then the last word."""

    def __init__(self, connection: int, send: Callable[[bytes], None]) -> None:
        self._connection, self._send = connection, send
        self._credit = WINDOW_BYTES
        self._waiting = bytearray()
        self._is_held = False
        self._last: list[int] = []

    @property
    def buffered_bytes(self) -> int:
        return len(self._waiting)

    def write(self, data: bytes) -> None:
        if not self._last:
            self._waiting += data
            self._flush()

    def add_credit(self, frame: Frame) -> None:
        """The other end has taken so much. Raises BadFrame."""
        self._credit += frame.number
        if not frame.number or self._credit > WINDOW_BYTES:
            raise BadFrame("it grants what it never had")
        self._flush()

    def pause(self) -> None:
        """The stream is full: what is written waits."""
        self._is_held = True

    def resume(self) -> None:
        self._is_held = False
        self._flush()

    def discard(self) -> None:
        """What waits: nobody wants it any more."""
        self._waiting.clear()
        self._last.clear()

    def finish(self, kind: int) -> None:
        """EOF or CLOSE, after what waits."""
        if kind not in self._last:
            self._last.append(kind)
            if not self._waiting:
                self._send(encode_frame(kind, self._connection))

    def _flush(self) -> None:
        size = min(self._credit, len(self._waiting))
        if not size or self._is_held:
            return
        part = bytes(self._waiting[:size])
        del self._waiting[:size]
        self._credit -= size
        self._send(encode_data_frames(self._connection, part))
        if not self._waiting:
            for kind in self._last:
                self._send(encode_frame(kind, self._connection))


class ReceiveWindow:
    """What one end has room for."""

    def __init__(self, connection: int, send: Callable[[bytes], None]) -> None:
        self._connection, self._send = connection, send
        self._room = WINDOW_BYTES
        self._taken = 0  # of which the other end does not know yet

    def receive(self, size: int) -> None:
        """Raises BadFrame when there was no room, or nothing in it."""
        if not size:
            raise BadFrame("it sends nothing")
        self._room -= size
        if self._room < 0:
            raise BadFrame("it sends more than there is room for")

    def release(self, size: int) -> None:
        """There is room for so much again."""
        self._taken += size
        if self._taken >= _WORTH_TELLING:
            self._room += self._taken
            self._send(encode_credit_frame(self._connection, self._taken))
            self._taken = 0
