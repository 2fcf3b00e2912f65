"""Relay link: the server's end of one relay. Starts the program inside the job and exchanges frames with it.

The other end belongs to the job's user and is not trusted: a protocol error ends the relay, and memory use is
limited by the windows of its connections.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from heliostat.engines.exec import ExecCommand
from heliostat.engines.relay.channel import RelayChannel
from heliostat.payloads import relay_frames as frames
from heliostat.payloads.relay_frames import MAX_CONNECTIONS, WINDOW_BYTES, BadFrame, Frame
from heliostat.server_log import get_logger

log = get_logger()
P = TypeVar("P", bound=asyncio.Protocol)
_MAX_NOISE_BYTES = 64 * 1024  # before HELLO
_TAIL_BYTES = 2000
_FULL_BYTES = 2**20  # unread by the relay: then its connections are paused
_STRAY_BYTES = 2 * WINDOW_BYTES  # of a closed connection: a full window, and some frames without data
_STRAY_FRAME_BYTES = WINDOW_BYTES // 16


@dataclass(frozen=True, slots=True)
class LinkLimits:
    start_seconds: float = 30.0
    response_seconds: float = 20.0
    exit_seconds: float = 5.0  # before TERM is sent to a program that should exit, and again before KILL
    max_unsent_bytes: int = 4 * 2**20  # including control frames, which are never paused
    max_connections: int = frames.MAX_CONNECTIONS


_LIMITS = LinkLimits()


class RelayLost(Exception):
    """The relay ended or did not start; the message is the reason."""


class PortNotListening(Exception):
    """The job does not listen there; the message is the reason."""


class PortUnreachable(Exception):
    """The port does not answer; the message is the reason."""


class RelayLink(asyncio.Protocol):
    """Bound to one event loop. Created by `start`."""

    def __init__(self, process: "subprocess.Popen[bytes]", limits: LinkLimits) -> None:
        self._limits = limits
        self._process, self._descriptor = process, os.pidfd_open(process.pid)
        self._reader = frames.FrameReader()
        self._noise = b""
        self._numbers = itertools.count(1)
        self._channels: dict[int, RelayChannel] = {}
        self._pending: dict[int, asyncio.Future[str]] = {}
        self._protocols: dict[int, asyncio.Protocol] = {}
        self._strays = StrayFrameBudget()
        self._is_full = False
        self._stderr = _Tail()
        self._hello: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reason = ""
        self.is_lost = False
        self.last_used_at = time.monotonic()  # end of the last connection or check
        self._transport: asyncio.Transport

    @classmethod
    async def start(cls, command: ExecCommand, limits: LinkLimits = _LIMITS) -> "RelayLink":
        """Raises RelayLost."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        try:
            process = await loop.run_in_executor(None, _spawn, command, theirs)
        except (OSError, subprocess.SubprocessError) as error:
            ours.close()
            raise RelayLost(str(error)) from error
        finally:
            theirs.close()
        link = cls(process, limits)
        ours.setblocking(False)
        await loop.create_connection(lambda: link, sock=ours)
        await loop.connect_read_pipe(lambda: link._stderr, process.stderr)
        try:
            async with asyncio.timeout(limits.start_seconds):
                await asyncio.shield(link._hello)
        except TimeoutError:
            link.stop("the relay did not start in time")
            await link._hello
        except asyncio.CancelledError:
            link.stop("the request was cancelled")
            raise
        return link

    @property
    def is_idle(self) -> bool:
        return not self._channels and not self._pending

    @property
    def lost_reason(self) -> str:
        """Why the relay ended."""
        return self._stderr.last_line or self._reason

    async def open(self, port: int, protocol: Callable[[], P]) -> P:
        """A connection to this port of the job. Raises PortNotListening, PortUnreachable or RelayLost."""
        if len(self._channels) + len(self._pending) >= self._limits.max_connections:
            raise PortUnreachable("too many connections to this job")
        number, created = next(self._numbers), protocol()
        self._protocols[number] = created
        try:
            await self._answer(frames.OPEN, number, port)
        except (PortUnreachable, asyncio.CancelledError):
            self.send(frames.encode_frame(frames.CLOSE, number))
            if (late := self._channels.pop(number, None)) is not None:
                late.mark_lost(None)
            raise
        finally:
            self._protocols.pop(number, None)
        return created

    async def check(self, port: int) -> str:
        """The job's listening sockets of this port, as text. Raises PortNotListening or RelayLost."""
        return await self._answer(frames.CHECK, next(self._numbers), port)

    def stop(self, reason: str) -> None:
        """Close all connections and end the program."""
        self._reason = self._reason or reason
        if not self._transport.is_closing():
            self._transport.abort()

    async def wait_closed(self) -> None:
        """After `stop`: wait until the program has exited."""
        await asyncio.shield(self._exited)

    def send(self, data: bytes) -> None:
        if self.is_lost or self._transport.is_closing():
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > self._limits.max_unsent_bytes:
            self.stop("the relay does not read its input")

    def pause_writing(self) -> None:
        self._is_full = True
        for channel in self._channels.values():
            channel.pause_sending()

    def resume_writing(self) -> None:
        """Resume one channel after the other, until the stream is full again."""
        self._is_full = False
        for number, channel in list(self._channels.items()):
            if self._is_full:
                return
            if self._channels.pop(number, None) is not None:
                self._channels[number] = channel
                channel.resume_sending()

    def remove_channel(self, number: int) -> None:
        self._channels.pop(number, None)
        self._strays.add_closed_connection()
        self.last_used_at = time.monotonic()

    async def _answer(self, kind: int, number: int, port: int) -> str:
        if self.is_lost:
            raise RelayLost(self.lost_reason)
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._pending[number] = answer
        self.send(frames.encode_port_frame(kind, number, port))
        try:
            async with asyncio.timeout(self._limits.response_seconds):
                return await answer
        except TimeoutError:
            self._strays.add_closed_connection()
            raise PortUnreachable(f"no answer within {self._limits.response_seconds:g} s") from None
        except asyncio.CancelledError:
            self._strays.add_closed_connection()
            raise
        finally:
            self._pending.pop(number, None)
            self.last_used_at = time.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_FULL_BYTES)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data if self._hello.done() else self._after_hello(data)):
                self._receive_frame(frame)
        except BadFrame as error:
            log.warning("relay_broken", error=str(error))
            self.stop(f"protocol error: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._reason = self._reason or "the relay has ended"
        lost = ConnectionResetError(self._reason)
        for channel in list(self._channels.values()):
            channel.mark_lost(lost)
        self._finishing = asyncio.get_running_loop().create_task(self._finish())

    async def _finish(self) -> None:
        """Wait for the end of the program, whose last error line is the reason for all pending requests."""
        await _wait_for_exit(self._process, self._descriptor, self._limits.exit_seconds)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stderr.closed.wait(), 1.0)
        waiting: list[asyncio.Future[Any]] = [self._hello, *self._pending.values()]
        for answer in waiting:
            if not answer.done():
                answer.set_exception(RelayLost(self.lost_reason))
                answer.exception()  # marks it as retrieved: there may be no waiter
        self._exited.set_result(None)

    def _after_hello(self, data: bytes) -> bytes:
        """The bytes after HELLO. Before it, the node may print messages of its own."""
        self._noise += data
        found = self._noise.find(frames.HELLO)
        if found < 0:
            if len(self._noise) > _MAX_NOISE_BYTES:
                raise BadFrame("no HELLO")
            return b""
        rest, self._noise = self._noise[found + len(frames.HELLO) :], b""
        self._hello.set_result(None)
        return rest

    def _receive_frame(self, frame: Frame) -> None:
        if frame.connection in self._channels:
            self._channels[frame.connection].receive_frame(frame)
            return
        answer = self._pending.get(frame.connection)
        if answer is None or answer.done():
            self._strays.receive(frame)  # of a connection that was closed here
            return
        text = frame.payload.decode("utf-8", "replace")
        if frame.kind == frames.OPENED:
            if (protocol := self._protocols.get(frame.connection)) is not None:
                self._add(RelayChannel(frame.connection, self, protocol), frame.connection)
            answer.set_result(text)
        elif frame.kind in (frames.REFUSED, frames.FAILED):
            answer.set_exception(PortNotListening(text) if frame.kind == frames.REFUSED else PortUnreachable(text))
        else:
            raise BadFrame(f"frame of kind {frame.kind} before OPENED")

    def _add(self, channel: RelayChannel, number: int) -> None:
        self._channels[number] = channel
        if self._is_full:
            channel.pause_sending()


class _Tail(asyncio.Protocol):
    """The last bytes of a program's error output."""

    def __init__(self) -> None:
        self._text = b""
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._text = (self._text + data)[-_TAIL_BYTES:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    @property
    def last_line(self) -> str:
        lines = [line for line in self._text.decode("utf-8", "replace").splitlines() if line.strip()]
        return "".join(char for char in lines[-1] if char.isprintable())[:200] if lines else ""


def _spawn(command: ExecCommand, stream: socket.socket) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command.argv,
        env=dict(command.environment),
        cwd="/",
        pass_fds=command.inherited_descriptors,
        stdin=stream.fileno(),
        stdout=stream.fileno(),
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


async def _wait_for_exit(process: "subprocess.Popen[bytes]", descriptor: int, exit_seconds: float) -> None:
    """The program exits when its input is closed; if not, send TERM and KILL. Closes the pidfd."""
    loop, exited = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, exited.set)
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(exited.wait(), exit_seconds)
            if exited.is_set():
                break
            os.killpg(process.pid, number)
        await exited.wait()
        process.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


class StrayFrameBudget:
    """Limits frames of connections that were closed here: some may still be in transit, but not many."""

    def __init__(self) -> None:
        self._left = 0

    def add_closed_connection(self) -> None:
        """One more connection was closed."""
        self._left = min(self._left + _STRAY_BYTES, MAX_CONNECTIONS * _STRAY_BYTES)

    def receive(self, frame: Frame) -> None:
        """Raises BadFrame."""
        size = len(frame.payload)
        self._left -= size if size and frame.kind == frames.DATA else max(size, _STRAY_FRAME_BYTES)
        if self._left < 0:
            raise BadFrame("too many frames for unknown connections")
