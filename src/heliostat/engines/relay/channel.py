"""Relay channel: one connection through a relay, as an asyncio transport."""

import asyncio
from typing import Protocol

from heliostat.payloads import relay_frames as frames
from heliostat.payloads.relay_frames import Frame, ReceiveWindow, SendWindow

_HIGH_BYTES = 64 * 1024  # buffered, before the protocol is paused
_LOW_BYTES = 16 * 1024


class FrameStream(Protocol):
    """The stream that all connections of a relay share."""

    def send(self, data: bytes) -> None: ...

    def remove_channel(self, number: int) -> None: ...


class RelayChannel(asyncio.Transport):
    """Bound to one event loop, from OPENED to CLOSE."""

    def __init__(self, number: int, stream: FrameStream, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._number, self._stream, self._protocol = number, stream, protocol
        self._out, self._in = SendWindow(number, stream.send), ReceiveWindow(number, stream.send)
        self._kept = bytearray()  # received while reading is paused
        self._last = 0  # EOF or CLOSE, to be delivered after `_kept`
        self._received_last = 0  # EOF or CLOSE, once received
        self._is_paused = self._is_closing = self._is_lost = self._is_full = False
        protocol.connection_made(self)

    def receive_frame(self, frame: Frame) -> None:
        """Raises BadFrame."""
        self._check_order(frame.kind)
        if frame.kind == frames.DATA:
            self._in.receive(len(frame.payload))
            self._kept += frame.payload
            self._deliver()
        elif frame.kind in (frames.EOF, frames.CLOSE):
            self._last = self._received_last = frame.kind
            self._deliver()
        elif frame.kind == frames.CREDIT:
            self._out.add_credit(frame)
            self._resume_if_drained()
        else:
            raise frames.BadFrame(f"unexpected frame of kind {frame.kind}")

    def pause_sending(self) -> None:
        """The stream is full."""
        self._out.pause()

    def resume_sending(self) -> None:
        if not self._is_lost:
            self._out.resume()
            self._resume_if_drained()

    def mark_lost(self, error: Exception | None) -> None:
        """The other end closed the connection, or the relay ended."""
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._kept.clear()
        self._stream.remove_channel(self._number)
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
        """Close after all written bytes are sent."""
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
        """Buffered data is delivered by the event loop, never within this call."""
        if self._is_paused:
            self._is_paused = False
            asyncio.get_running_loop().call_soon(self._deliver)

    def get_write_buffer_size(self) -> int:
        return self._out.buffered_bytes

    def _check_order(self, kind: int) -> None:
        after_eof = self._received_last == frames.EOF and kind in (frames.DATA, frames.EOF)
        if after_eof or (self._received_last == frames.CLOSE and kind != frames.CREDIT):
            raise frames.BadFrame("frame after EOF or CLOSE")

    def _deliver(self) -> None:
        if self._is_paused or self._is_lost:
            return
        if self._kept:
            data = bytes(self._kept)
            self._kept.clear()
            self._deliver_data(data)
        if self._kept or self._is_paused:
            return
        if self._last == frames.CLOSE:
            self.mark_lost(None)
        elif self._last == frames.EOF:
            self._last = 0
            self._deliver_eof()

    def _deliver_data(self, data: bytes) -> None:
        if not self._is_closing:
            self._protocol.data_received(data)
        if not self._is_lost:
            self._in.release(len(data))

    def _deliver_eof(self) -> None:
        if not self._is_closing and not self._protocol.eof_received():
            self.close()

    def _resume_if_drained(self) -> None:
        if self._is_full and self._out.buffered_bytes <= _LOW_BYTES:
            self._is_full = False
            self._protocol.resume_writing()
        self._lose_if_drained()

    def _lose_if_drained(self) -> None:
        if self._is_closing and not self._out.buffered_bytes:
            self.mark_lost(None)
