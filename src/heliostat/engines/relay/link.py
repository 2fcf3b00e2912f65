"""Our end of one relay: starts the program that leads into the job, and speaks with it.

The other end is the job's user's own, and may say anything: what breaks the rules ends the relay, and never takes
more of our memory than its connections have room for.
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
_MOST_NOISE = 64 * 1024  # before its first word
_TAIL_BYTES = 2000
_FULL_BYTES = 2**20  # that it has not read: then its connections wait
_STRAY_BYTES = 2 * WINDOW_BYTES  # of a closed connection: all there was room for, and some frames without any
_STRAY_FRAME_BYTES = WINDOW_BYTES // 16


@dataclass(frozen=True, slots=True)
class LinkLimits:
    start_seconds: float = 30.0
    response_seconds: float = 20.0
    exit_seconds: float = 5.0  # before a program that should leave is told to, and again before it is killed
    max_unsent_bytes: int = 4 * 2**20  # with what cannot wait
    max_connections: int = frames.MAX_CONNECTIONS


_LIMITS = LinkLimits()


class RelayLost(Exception):
    """It ended, or never began; says why."""


class PortNotListening(Exception):
    """The job does not listen there; says what was found."""


class PortUnreachable(Exception):
    """It does not answer; says why."""


class RelayLink(asyncio.Protocol):
    """Lives on one event loop. Made by `start`."""

    def __init__(self, process: "subprocess.Popen[bytes]", limits: LinkLimits) -> None:
        self._limits = limits
        self._process, self._descriptor = process, os.pidfd_open(process.pid)
        self._reader = frames.FrameReader()
        self._noise = b""
        self._numbers = itertools.count(1)
        self._channels: dict[int, RelayChannel] = {}
        self._asked: dict[int, asyncio.Future[str]] = {}
        self._protocols: dict[int, asyncio.Protocol] = {}
        self._strays = StrayFrameBudget()
        self._is_full = False
        self._said = _Tail()
        self._hello: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._why = ""
        self.is_lost = False
        self.last_used_at = time.monotonic()  # when its last connection ended, or somebody asked
        self._transport: asyncio.Transport

    @classmethod
    async def start(cls, inside: ExecCommand, limits: LinkLimits = _LIMITS) -> "RelayLink":
        """Raises RelayLost."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        try:
            process = await loop.run_in_executor(None, _spawn, inside, theirs)
        except (OSError, subprocess.SubprocessError) as error:
            ours.close()
            raise RelayLost(str(error)) from error
        finally:
            theirs.close()
        link = cls(process, limits)
        ours.setblocking(False)
        await loop.create_connection(lambda: link, sock=ours)
        await loop.connect_read_pipe(lambda: link._said, process.stderr)
        try:
            async with asyncio.timeout(limits.start_seconds):
                await asyncio.shield(link._hello)
        except TimeoutError:
            link.stop("it did not begin in time")
            await link._hello
        except asyncio.CancelledError:
            link.stop("nobody waits for it")
            raise
        return link

    @property
    def is_idle(self) -> bool:
        return not self._channels and not self._asked

    @property
    def lost_reason(self) -> str:
        """It was lost."""
        return self._said.last_line or self._why

    async def open(self, port: int, protocol: Callable[[], P]) -> P:
        """A connection to this port of the job. Raises PortRefused, PortFailed or RelayLost."""
        if len(self._channels) + len(self._asked) >= self._limits.max_connections:
            raise PortUnreachable("there are too many connections to this job")
        number, made = next(self._numbers), protocol()
        self._protocols[number] = made
        try:
            await self._answer(frames.OPEN, number, port)
        except (PortUnreachable, asyncio.CancelledError):
            self.send(frames.encode_frame(frames.CLOSE, number))
            if (late := self._channels.pop(number, None)) is not None:
                late.mark_lost(None)
            raise
        finally:
            self._protocols.pop(number, None)
        return made

    async def check(self, port: int) -> str:
        """A proof of who of the job listens there. Raises PortRefused or RelayLost."""
        return await self._answer(frames.CHECK, next(self._numbers), port)

    def stop(self, why: str) -> None:
        """All its connections are lost, and the program leaves."""
        self._why = self._why or why
        if not self._transport.is_closing():
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Once it was ended: the program has left."""
        await asyncio.shield(self._gone)

    def send(self, data: bytes) -> None:
        if self.is_lost or self._transport.is_closing():
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > self._limits.max_unsent_bytes:
            self.stop("it does not read")

    def pause_writing(self) -> None:
        self._is_full = True
        for channel in self._channels.values():
            channel.pause_sending()

    def resume_writing(self) -> None:
        """Each in its turn, until it is full again."""
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
        self._asked[number] = answer
        self.send(frames.encode_port_frame(kind, number, port))
        try:
            async with asyncio.timeout(self._limits.response_seconds):
                return await answer
        except TimeoutError:
            self._strays.add_closed_connection()
            raise PortUnreachable("it took too long") from None
        except asyncio.CancelledError:
            self._strays.add_closed_connection()
            raise
        finally:
            self._asked.pop(number, None)
            self.last_used_at = time.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_FULL_BYTES)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data if self._hello.done() else self._after_hello(data)):
                self._hear(frame)
        except BadFrame as error:
            log.warning("relay_broken", error=str(error))
            self.stop(f"it does not keep to the rules: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._why = self._why or "it has ended"
        lost = ConnectionResetError(self._why)
        for channel in list(self._channels.values()):
            channel.mark_lost(lost)
        self._farewell = asyncio.get_running_loop().create_task(self._see_off())

    async def _see_off(self) -> None:
        """Once the program is gone it has said why."""
        await _gone(self._process, self._descriptor, self._limits.exit_seconds)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._said.over.wait(), 1.0)
        waiting: list[asyncio.Future[Any]] = [self._hello, *self._asked.values()]
        for answer in waiting:
            if not answer.done():
                answer.set_exception(RelayLost(self.lost_reason))
                answer.exception()  # nobody may be left to hear it
        self._gone.set_result(None)

    def _after_hello(self, data: bytes) -> bytes:
        """What follows its first word. Before that a node may say something of its own."""
        self._noise += data
        found = self._noise.find(frames.HELLO)
        if found < 0:
            if len(self._noise) > _MOST_NOISE:
                raise BadFrame("it says something else than a relay does")
            return b""
        rest, self._noise = self._noise[found + len(frames.HELLO) :], b""
        self._hello.set_result(None)
        return rest

    def _hear(self, frame: Frame) -> None:
        if frame.connection in self._channels:
            self._channels[frame.connection].receive_frame(frame)
            return
        answer = self._asked.get(frame.connection)
        if answer is None or answer.done():
            self._strays.receive(frame)  # about one that we have closed
            return
        text = frame.payload.decode("utf-8", "replace")
        if frame.kind == frames.OPENED:
            if (protocol := self._protocols.get(frame.connection)) is not None:
                self._add(RelayChannel(frame.connection, self, protocol), frame.connection)
            answer.set_result(text)
        elif frame.kind in (frames.REFUSED, frames.FAILED):
            answer.set_exception(PortNotListening(text) if frame.kind == frames.REFUSED else PortUnreachable(text))
        else:
            raise BadFrame(f"a frame of kind {frame.kind} before its first word")

    def _add(self, channel: RelayChannel, number: int) -> None:
        self._channels[number] = channel
        if self._is_full:
            channel.pause_sending()


class _Tail(asyncio.Protocol):
    """The end of what a program complains about."""

    def __init__(self) -> None:
        self._text = b""
        self.over = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._text = (self._text + data)[-_TAIL_BYTES:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set()

    @property
    def last_line(self) -> str:
        lines = [line for line in self._text.decode("utf-8", "replace").splitlines() if line.strip()]
        return "".join(char for char in lines[-1] if char.isprintable())[:200] if lines else ""


def _spawn(inside: ExecCommand, stream: socket.socket) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        inside.argv,
        env=dict(inside.environment),
        cwd="/",
        pass_fds=inside.inherited_descriptors,
        stdin=stream.fileno(),
        stdout=stream.fileno(),
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


async def _gone(process: "subprocess.Popen[bytes]", descriptor: int, leave_seconds: float) -> None:
    """It leaves by itself when nobody listens; if not, it is told to. `descriptor` is its pidfd, closed here."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, over.set)
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), leave_seconds)
            if over.is_set():
                break
            os.killpg(process.pid, number)
        await over.wait()
        process.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


class StrayFrameBudget:
    """Frames about connections that we have closed: some were on their way by then, but not without end."""

    def __init__(self) -> None:
        self._left = 0

    def add_closed_connection(self) -> None:
        """One more was closed."""
        self._left = min(self._left + _STRAY_BYTES, MAX_CONNECTIONS * _STRAY_BYTES)

    def receive(self, frame: Frame) -> None:
        """Raises BadFrame."""
        size = len(frame.payload)
        self._left -= size if size and frame.kind == frames.DATA else max(size, _STRAY_FRAME_BYTES)
        if self._left < 0:
            raise BadFrame("it talks about connections that there are not")
