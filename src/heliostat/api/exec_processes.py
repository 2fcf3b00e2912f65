"""Processes that the exec endpoint runs: on pipes, or on a pseudo-terminal."""

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
# The first terminal that a session leader opens becomes its controlling terminal.
_TERMINAL_SCRIPT = 'exec 0<>"$0" 1>&0 2>&0 && exec "$@"'


class TerminalSize(NamedTuple):
    """In characters."""

    rows: int
    columns: int


class OutputStream(Protocol):
    async def read(self, max_bytes: int) -> bytes:
        """Available output; empty at the end."""


class ExecProcess:
    """A process with named output streams. Uses `subprocess`: uvloop would leak descriptors to other processes."""

    outputs: dict[str, OutputStream]

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self._ended = process, asyncio.Event()
        loop, descriptor = asyncio.get_running_loop(), os.pidfd_open(process.pid)

        def on_end() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self._ended.set()

        loop.add_reader(descriptor, on_end)

    async def wait(self) -> int:
        """The exit code as in a shell: 128 + number for a signal."""
        await self._ended.wait()
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    async def terminate(self) -> None:
        """Sends TERM, then KILL. Does nothing if it has ended."""
        for number in self._stop_signals:
            if self._ended.is_set():
                break
            os.killpg(self._process.pid, number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _TERM_SECONDS)

    _stop_signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGKILL)

    async def write(self, part: bytes) -> None:
        """To its standard input. Raises OSError if it has closed it."""
        raise NotImplementedError

    def close_input(self) -> None: ...

    def resize(self, size: TerminalSize) -> None: ...

    def close(self) -> None: ...


class PipeProcess(ExecProcess):
    @classmethod
    async def start(cls, command: ExecCommand) -> "PipeProcess":
        process = cls(await _start(command, subprocess.PIPE))
        await process._connect()
        return process

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
    """On a terminal, all output is `stdout`."""

    _stop_signals = (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL)  # interactive shells ignore TERM

    @classmethod
    async def start(cls, command: ExecCommand, size: TerminalSize) -> "TerminalProcess":
        master, slave = os.openpty()
        try:
            _set_size(master, size)
            if command.terminal_owner_uid is not None:
                os.fchown(slave, command.terminal_owner_uid, -1)
            argv = ("/bin/sh", "-c", _TERMINAL_SCRIPT, os.ttyname(slave), *command.argv)
            process = cls(await _start(replace(command, argv=argv), slave))
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)
        os.set_blocking(master, False)
        process._terminal = master
        process.outputs = {"stdout": _TerminalOutput(master)}
        return process

    _terminal: int

    async def write(self, part: bytes) -> None:
        while part:
            try:
                part = part[os.write(self._terminal, part) :]
            except BlockingIOError:
                await _wait_ready(self._terminal, to_write=True)

    def resize(self, size: TerminalSize) -> None:
        _set_size(self._terminal, size)

    def close(self) -> None:
        os.close(self._terminal)


class _TerminalOutput:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def read(self, max_bytes: int) -> bytes:
        while True:
            try:
                return os.read(self._descriptor, max_bytes)
            except BlockingIOError:
                await _wait_ready(self._descriptor, to_write=False)
            except OSError:  # no process has the terminal open any more
                return b""


async def _wait_ready(descriptor: int, *, to_write: bool) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    add, remove = (loop.add_writer, loop.remove_writer) if to_write else (loop.add_reader, loop.remove_reader)
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)


def _set_size(terminal: int, size: TerminalSize) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))


async def _start(command: ExecCommand, stream: int) -> subprocess.Popen[bytes]:
    try:
        return await run_in_threadpool(_spawn, command, stream)
    except (OSError, subprocess.SubprocessError) as error:
        raise Conflict(f"The command cannot be started: {error}.", "Check the server's log.") from error


def _spawn(command: ExecCommand, stream: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command.argv,
        env=dict(command.environment),
        cwd="/",
        bufsize=0,
        pass_fds=command.inherited_descriptors,
        stdin=stream,
        stdout=stream,
        stderr=stream,
        start_new_session=True,
    )
