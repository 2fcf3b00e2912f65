"""One connection through a relay, to whoever uses it like any other of asyncio's."""

import asyncio
from typing import Protocol

from heliostat.payloads import relay_frames as frames
from heliostat.payloads.relay_frames import Frame, ReceiveWindow, SendWindow

_HIGH_BYTES = 64 * 1024  # written ahead of the server inside, before the writer is asked to wait
_LOW_BYTES = 16 * 1024


class FrameStream(Protocol):
    """The stream that all connections of a relay share."""

    def send(self, data: bytes) -> None: ...

    def remove_channel(self, number: int) -> None: ...


class RelayChannel(asyncio.Transport):
    """Lives on one event loop, from OPENED to CLOSE."""

    def __init__(self, number: int, wire: FrameStream, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._number, self._wire, self._protocol = number, wire, protocol
        self._out, self._in = SendWindow(number, wire.send), ReceiveWindow(number, wire.send)
        self._kept = bytearray()  # what came while nobody reads
        self._last = 0  # EOF or CLOSE: comes after that
        self._heard = 0  # the same, once it was heard
        self._is_paused = self._is_closing = self._is_lost = self._is_full = False
        protocol.connection_made(self)

    def receive_frame(self, frame: Frame) -> None:
        """Raises BadFrame."""
        self._check_turn(frame.kind)
        if frame.kind == frames.DATA:
            self._in.receive(len(frame.payload))
            self._kept += frame.payload
            self._tell_kept()
        elif frame.kind in (frames.EOF, frames.CLOSE):
            self._last = self._heard = frame.kind
            self._tell_kept()
        elif frame.kind == frames.CREDIT:
            self._out.add_credit(frame)
            self._tell_if_drained()
        else:
            raise frames.BadFrame(f"a frame of kind {frame.kind} out of turn")

    def pause_sending(self) -> None:
        """The stream is full."""
        self._out.pause()

    def resume_sending(self) -> None:
        if not self._is_lost:
            self._out.resume()
            self._tell_if_drained()

    def mark_lost(self, error: Exception | None) -> None:
        """It is over at the other end, or the relay is gone."""
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._kept.clear()
        self._wire.remove_channel(self._number)
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing:
            return
        self._out.write(bytes(data))
        if not self._is_full and self._out.buffered_bytes > _HIGH_BYTES:
            self._is_full = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._is_closing:
            self._out.finish(frames.EOF)

    def close(self) -> None:
        """After what was written."""
        if self._is_closing:
            return
        self._is_closing = True
        self._kept.clear()
        self._out.finish(frames.CLOSE)
        self._lose_if_drained()

    def abort(self) -> None:
        if not self._is_lost:
            self._out.discard()
            self._is_closing = True
            self._out.finish(frames.CLOSE)
            self.mark_lost(None)

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return not self._is_paused and not self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        """What was kept is told soon, never from within this call."""
        if self._is_paused:
            self._is_paused = False
            asyncio.get_running_loop().call_soon(self._tell_kept)

    def get_write_buffer_size(self) -> int:
        return self._out.buffered_bytes

    def _check_turn(self, kind: int) -> None:
        goes_on = self._heard == frames.EOF and kind in (frames.DATA, frames.EOF)
        if goes_on or (self._heard == frames.CLOSE and kind != frames.CREDIT):
            raise frames.BadFrame("it goes on after its last word")

    def _tell_kept(self) -> None:
        if self._is_paused or self._is_lost:
            return
        if self._kept:
            data = bytes(self._kept)
            self._kept.clear()
            self._pass_on(data)
        if self._kept or self._is_paused:
            return
        if self._last == frames.CLOSE:
            self.mark_lost(None)
        elif self._last == frames.EOF:
            self._last = 0
            self._tell_eof()

    def _pass_on(self, data: bytes) -> None:
        if not self._is_closing:
            self._protocol.data_received(data)
        if not self._is_lost:
            self._in.release(len(data))

    def _tell_eof(self) -> None:
        if not self._is_closing and not self._protocol.eof_received():
            self.close()

    def _tell_if_drained(self) -> None:
        if self._is_full and self._out.buffered_bytes <= _LOW_BYTES:
            self._is_full = False
            self._protocol.resume_writing()
        self._lose_if_drained()

    def _lose_if_drained(self) -> None:
        if self._is_closing and not self._out.buffered_bytes:
            self.mark_lost(None)
