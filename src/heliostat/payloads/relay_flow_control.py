"""How much of a connection's bytes may be on their way: the same at both ends of a relay, here and inside jobs."""

from __future__ import annotations

from collections.abc import Callable

from heliostat.payloads.relay_frames import WINDOW, BadFrame, Frame, with_credit, with_data, written

_WORTH_TELLING = WINDOW // 4


class Outflow:
    """What one end sends: as much as the other has room for, the rest when it has, then the last word."""

    def __init__(self, connection: int, send: Callable[[bytes], None]) -> None:
        self._connection, self._send = connection, send
        self._credit = WINDOW
        self._waiting = bytearray()
        self._is_held = False
        self._last: list[int] = []

    @property
    def waiting_bytes(self) -> int:
        return len(self._waiting)

    def write(self, data: bytes) -> None:
        if not self._last:
            self._waiting += data
            self._flush()

    def grant(self, frame: Frame) -> None:
        """The other end has taken so much. Raises BadFrame."""
        self._credit += frame.number
        if not frame.number or self._credit > WINDOW:
            raise BadFrame("it grants what it never had")
        self._flush()

    def hold(self) -> None:
        """The stream is full: what is written waits."""
        self._is_held = True

    def go_on(self) -> None:
        self._is_held = False
        self._flush()

    def drop(self) -> None:
        """What waits: nobody wants it any more."""
        self._waiting.clear()
        self._last.clear()

    def finish(self, kind: int) -> None:
        """EOF or CLOSE, after what waits."""
        if kind not in self._last:
            self._last.append(kind)
            if not self._waiting:
                self._send(written(kind, self._connection))

    def _flush(self) -> None:
        size = min(self._credit, len(self._waiting))
        if not size or self._is_held:
            return
        part = bytes(self._waiting[:size])
        del self._waiting[:size]
        self._credit -= size
        self._send(with_data(self._connection, part))
        if not self._waiting:
            for kind in self._last:
                self._send(written(kind, self._connection))


class Inflow:
    """What one end has room for."""

    def __init__(self, connection: int, send: Callable[[bytes], None]) -> None:
        self._connection, self._send = connection, send
        self._room = WINDOW
        self._taken = 0  # of which the other end does not know yet

    def came(self, size: int) -> None:
        """Raises BadFrame when there was no room, or nothing in it."""
        if not size:
            raise BadFrame("it sends nothing")
        self._room -= size
        if self._room < 0:
            raise BadFrame("it sends more than there is room for")

    def took(self, size: int) -> None:
        """There is room for so much again."""
        self._taken += size
        if self._taken >= _WORTH_TELLING:
            self._room += self._taken
            self._send(with_credit(self._connection, self._taken))
            self._taken = 0
