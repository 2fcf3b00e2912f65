"""A program that the server runs for somebody who is connected: on pipes, or on a terminal."""

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import termios
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from starlette.concurrency import run_in_threadpool

from heliostat.errors import Conflict
from heliostat.services.jobs.exec import ExecCommand

_TERM_SECONDS = 3.0
# The first terminal that the leader of a session opens is the one that sends it signals.
_ON_TERMINAL = 'exec 0<>"$0" 1>&0 2>&0 && exec "$@"'


class TerminalSize(NamedTuple):
    """Of a terminal, in characters."""

    rows: int
    columns: int


class OutputStream(Protocol):
    async def read(self, most: int) -> bytes:
        """What there is; empty at its end."""


class ExecProcess:
    """Its output streams by name. Started by Python itself: uvloop's own way lends descriptors to others."""

    outputs: dict[str, OutputStream]

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self._over = process, asyncio.Event()
        loop, descriptor = asyncio.get_running_loop(), os.pidfd_open(process.pid)

        def ended() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self._over.set()

        loop.add_reader(descriptor, ended)

    async def wait(self) -> int:
        """The exit code as a shell tells it."""
        await self._over.wait()
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    async def terminate(self) -> None:
        """TERM, and KILL for what is left; already gone is success."""
        for number in self._last_signals:
            if self._over.is_set():
                break
            os.killpg(self._process.pid, number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), _TERM_SECONDS)

    _last_signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGKILL)

    async def write(self, part: bytes) -> None:
        """To its standard input; OSError if it reads no more."""
        raise NotImplementedError

    def close_input(self) -> None: ...

    def resize(self, size: TerminalSize) -> None: ...

    def close(self) -> None: ...


class PipeProcess(ExecProcess):
    @classmethod
    async def start(cls, inside: ExecCommand) -> "PipeProcess":
        running = cls(await _started(inside, subprocess.PIPE))
        await running._connect()
        return running

    async def write(self, part: bytes) -> None:
        self._stdin.write(part)
        await self._stdin.drain()

    def close_input(self) -> None:
        self._stdin.close()

    def close(self) -> None:
        self._stdin.close()
        for transport in self._transports:
            transport.close()

    async def _connect(self) -> None:
        loop, process = asyncio.get_running_loop(), self._process
        readers = {"stdout": asyncio.StreamReader(), "stderr": asyncio.StreamReader()}
        self._transports = [
            (await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe))[0]
            for reader, pipe in zip(readers.values(), (process.stdout, process.stderr), strict=True)
        ]
        self.outputs = dict(readers)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, process.stdin)
        self._stdin = asyncio.StreamWriter(transport, protocol, None, loop)


class TerminalProcess(ExecProcess):
    """All it prints is its `stdout`, as on any terminal."""

    _last_signals = (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL)  # shells that talk to somebody ignore TERM

    @classmethod
    async def start(cls, inside: ExecCommand, size: TerminalSize) -> "TerminalProcess":
        ours, theirs = os.openpty()
        try:
            _set_size(ours, size)
            if inside.terminal_owner_uid is not None:
                os.fchown(theirs, inside.terminal_owner_uid, -1)
            on_it = replace(inside, argv=("/bin/sh", "-c", _ON_TERMINAL, os.ttyname(theirs), *inside.argv))
            running = cls(await _started(on_it, theirs))
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        os.set_blocking(ours, False)
        running._terminal = ours
        running.outputs = {"stdout": _Screen(ours)}
        return running

    _terminal: int

    async def write(self, part: bytes) -> None:
        while part:
            try:
                part = part[os.write(self._terminal, part) :]
            except BlockingIOError:
                await _ready(self._terminal, to_write=True)

    def resize(self, size: TerminalSize) -> None:
        _set_size(self._terminal, size)

    def close(self) -> None:
        os.close(self._terminal)


class _Screen:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def read(self, most: int) -> bytes:
        while True:
            try:
                return os.read(self._descriptor, most)
            except BlockingIOError:
                await _ready(self._descriptor, to_write=False)
            except OSError:  # nobody has the other side open any more
                return b""


async def _ready(descriptor: int, *, to_write: bool) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    add, remove = (loop.add_writer, loop.remove_writer) if to_write else (loop.add_reader, loop.remove_reader)
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)


def _set_size(terminal: int, size: TerminalSize) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))


async def _started(inside: ExecCommand, stream: int) -> subprocess.Popen[bytes]:
    try:
        return await run_in_threadpool(_spawn, inside, stream)
    except (OSError, subprocess.SubprocessError) as error:
        raise Conflict(f"It cannot be started: {error}.", "See the server's log.") from error


def _spawn(inside: ExecCommand, stream: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        inside.argv,
        env=dict(inside.environment),
        cwd="/",
        bufsize=0,
        pass_fds=inside.inherited_descriptors,
        stdin=stream,
        stdout=stream,
        stderr=stream,
        start_new_session=True,
    )
