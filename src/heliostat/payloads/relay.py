"""Relay inside a Slurm job: forwards connections from Heliostat to servers of that job, and to no others.

usage: relay MARK
Runs as the job's user. Ends when its input is closed. After a signal (which the whole job gets) it stays until its
last connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tty
from collections.abc import Callable, Coroutine
from typing import cast

from heliostat.payloads import relay_frames as frames
from heliostat.payloads.port_listeners import NotListening, PortSockets, find_port_sockets
from heliostat.payloads.relay_frames import Frame, ReceiveWindow, SendWindow
from heliostat.payloads.slurm_processes import SlurmJobProcesses, all_pids

CONNECT_SECONDS = 10.0
_MAX_CHUNK_BYTES = 65536
_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGURG")


class Relay(asyncio.Protocol):
    """Receives frames from standard input."""

    def __init__(self, find: Callable[[int], PortSockets], send: Callable[[bytes], None]) -> None:
        """`find` returns the job's listening sockets of a port, or raises NotListening."""
        self._find, self._send = find, send
        self._reader = frames.FrameReader()
        self._connections: dict[int, _Connection | None] = {}  # None: it is being opened
        self._tasks: set[asyncio.Future[None]] = set()
        self._is_leaving = False
        self.finished = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._receive_frame(frame)
        except frames.BadFrame as error:
            print(f"heliostat: {error}", file=sys.stderr)
            self.finished.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.finished.set()

    def exit_when_idle(self) -> None:
        """Exit when the last connection is closed."""
        self._is_leaving = True
        if not self._connections:
            self.finished.set()

    def remove_connection(self, number: int) -> None:
        self._connections.pop(number, None)
        if self._is_leaving:
            self.exit_when_idle()

    def _receive_frame(self, frame: Frame) -> None:
        if frame.kind == frames.OPEN:
            self._connections[frame.connection] = None
            self._begin(self._open(frame.connection, frame.number))
        elif frame.kind == frames.CHECK:
            self._begin(self._check(frame.connection, frame.number))
        elif frame.connection in self._connections:
            connection = self._connections[frame.connection]
            if connection is not None:
                connection.receive_frame(frame)
            elif frame.kind == frames.CLOSE:
                self.remove_connection(frame.connection)

    def _begin(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _check(self, number: int, port: int) -> None:
        try:
            listening = await self._find_sockets(port)
        except NotListening as error:
            self._send_text(frames.REFUSED, number, str(error))
        else:
            self._send_text(frames.OPENED, number, _proof(listening))

    async def _open(self, number: int, port: int) -> None:
        try:
            before = await self._find_sockets(port)
            connection = await self._connect(number, before.host, port)
            after = await self._find_sockets(port)
        except NotListening as error:
            self._fail(number, frames.REFUSED, str(error))
        except (OSError, asyncio.TimeoutError) as error:  # noqa: UP041 - two errors before Python 3.11
            self._fail(number, frames.FAILED, str(error) or "connection timed out")
        else:
            if after != before:
                self._fail(number, frames.REFUSED, "the listening process has just changed")
            elif self._connections.get(number) is connection:
                self._send_text(frames.OPENED, number, _proof(after))
                connection.begin()

    async def _connect(self, number: int, host: str, port: int) -> _Connection:
        loop = asyncio.get_event_loop()
        opening = loop.create_connection(lambda: _Connection(self, number, self._send), host, port)
        _, connection = await asyncio.wait_for(opening, CONNECT_SECONDS)
        if number not in self._connections:
            connection.abort()  # closed by the other end meanwhile
        else:
            self._connections[number] = connection
        return connection

    async def _find_sockets(self, port: int) -> PortSockets:
        return await asyncio.get_event_loop().run_in_executor(None, self._find, port)

    def _fail(self, number: int, kind: int, reason: str) -> None:
        connection = self._connections.get(number)
        if connection is not None:
            connection.abort()
        self.remove_connection(number)
        self._send_text(kind, number, reason)

    def _send_text(self, kind: int, number: int, text: str) -> None:
        self._send(frames.encode_frame(kind, number, text.encode("utf-8", "replace")[:1000]))


class _Connection(asyncio.Protocol):
    """A connection to a server of the job. Forwards nothing before `begin`."""

    def __init__(self, relay: Relay, number: int, send: Callable[[bytes], None]) -> None:
        self._relay, self._number = relay, number
        self._out, self._in = SendWindow(number, send), ReceiveWindow(number, send)
        self._unwritten = 0  # bytes not yet written to the server
        self._is_full = self._has_begun = self._has_received_eof = self._has_sent_eof = self._is_lost = False
        self._transport: asyncio.Transport

    def begin(self) -> None:
        self._has_begun = True
        self._transport.resume_reading()

    def abort(self) -> None:
        self._transport.abort()

    def receive_frame(self, frame: Frame) -> None:
        if frame.kind == frames.DATA:
            self._in.receive(len(frame.payload))
            self._unwritten += len(frame.payload)
            self._transport.write(frame.payload)
            self._release_written()
        elif frame.kind == frames.CREDIT:
            self._out.add_credit(frame)
            if not self._out.buffered_bytes and not self._has_sent_eof and not self._transport.is_closing():
                self._transport.resume_reading()
            self._forget_if_done()
        elif frame.kind == frames.EOF:
            self._has_received_eof = True
            self._finish_if_both()
            if not self._transport.is_closing():
                self._transport.write_eof()
        elif frame.kind == frames.CLOSE:
            self._has_begun = False  # forward nothing more
            self._out.discard()
            self._transport.close()
            self._forget_if_done()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        if not self._has_begun:
            return
        self._out.write(data)
        if self._out.buffered_bytes:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._has_sent_eof = True
        self._out.finish(frames.EOF)
        self._finish_if_both()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        if self._has_begun:
            if exc is not None and not self._has_sent_eof:
                self._out.write(_unread(self._transport))
            self._out.finish(frames.CLOSE)
        self._forget_if_done()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._release_written()

    def _release_written(self) -> None:
        if not self._is_full:
            size, self._unwritten = self._unwritten, 0
            self._in.release(size)

    def _forget_if_done(self) -> None:
        if self._is_lost and not self._out.buffered_bytes:
            self._relay.remove_connection(self._number)

    def _finish_if_both(self) -> None:
        if self._has_received_eof and self._has_sent_eof:
            self._transport.close()


def _unread(transport: asyncio.Transport) -> bytes:
    """What the server sent before it closed the connection. After a failed write, asyncio does not read it."""
    data = b""
    with transport.get_extra_info("socket").dup() as connection:
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            for part in iter(lambda: connection.recv(_MAX_CHUNK_BYTES), b""):
                data += part
    return data


class _Out:
    """Standard output. asyncio's write pipe would read from it too, and it may be the input's socket."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._buffer = descriptor, bytearray()
        os.set_blocking(descriptor, False)

    def write(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) == len(data):
            self._flush()

    def _flush(self) -> None:
        loop = asyncio.get_event_loop()
        try:
            del self._buffer[: os.write(self._descriptor, self._buffer[:_MAX_CHUNK_BYTES])]
        except BlockingIOError:
            pass
        except OSError:  # the other end is gone; the input ends as well
            self._buffer.clear()
        if self._buffer:
            loop.add_writer(self._descriptor, self._flush)
        else:
            loop.remove_writer(self._descriptor)


def _proof(listening: PortSockets) -> str:
    return " ".join([listening.host, *map(str, listening.sockets)])


async def serve(mark: str) -> None:
    """Serve on standard input and output until the input ends."""
    loop = asyncio.get_event_loop()
    processes = SlurmJobProcesses(os.environ.get("SLURM_JOB_ID", ""), mark)
    out = _Out(sys.stdout.fileno())
    relay = Relay(lambda port: find_port_sockets(port, all_pids(), processes.includes), out.write)
    for name in _SIGNALS:
        loop.add_signal_handler(getattr(signal, name), relay.exit_when_idle)
    out.write(frames.HELLO)
    await loop.connect_read_pipe(lambda: relay, sys.stdin.buffer)
    await relay.finished.wait()


def main(arguments: list[str]) -> None:
    if os.isatty(sys.stdout.fileno()):
        tty.setraw(sys.stdout.fileno())  # Slurm allocates a terminal so that output is not line-buffered
    asyncio.run(serve(arguments[0]))
    sys.stderr.flush()
    os._exit(0)  # without waiting for threads
