"""Runs commands inside a running job and streams their input and output."""

import base64
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import IO, NamedTuple

from heliostat.client.transport import SendBodyPart, Transport
from heliostat.errors import ServerUnreachable

_BLOCK = 64 * 1024


class OutputChunk(NamedTuple):
    stream: str  # stdout, stderr
    data: bytes


@dataclass(frozen=True, slots=True)
class ExecResult:
    exit_code: int
    stdout: bytes
    stderr: bytes


class TerminalInfo(NamedTuple):
    """The user's terminal."""

    name: str  # the value of TERM
    rows: int
    columns: int


TerminalInput = bytes | tuple[int, int]  # typed input, or new rows and columns


class ExecProcess:
    """A command inside a job. Iterating yields its output, then sets `exit_code`; stopping early ends it."""

    exit_code: int

    def __init__(
        self, transport: Transport, job: int, request: Mapping[str, object], parts: Iterable[bytes]
    ) -> None:
        self._transport, self._path = transport, f"/jobs/{job}/exec"
        self._first, self._parts = json.dumps(request).encode() + b"\n", parts

    def __iter__(self) -> Iterator[OutputChunk]:
        with self._transport.open_duplex(self._path) as (send, response_lines):
            send(self._first)
            sender = threading.Thread(target=self._send_input, args=(send,), daemon=True)
            sender.start()
            for line in response_lines():
                message = json.loads(line)
                if "exit_code" in message:
                    self.exit_code = message["exit_code"]
                    return
                for stream, data in message.items():
                    yield OutputChunk(stream, base64.b64decode(data))
        raise ServerUnreachable("The server closed the connection.", "Check it with `helio status`.")

    def read_to_end(self) -> ExecResult:
        """Reads all output and waits for the end."""
        parts = list(self)
        out, err = (b"".join(part.data for part in parts if part.stream == name) for name in ("stdout", "stderr"))
        return ExecResult(self.exit_code, out, err)

    def _send_input(self, send: SendBodyPart) -> None:
        with suppress(OSError, ValueError, HTTPException):  # the command has ended
            for part in self._parts:
                send(part)
            send(None)


def read_stdin_chunks(stdin: bytes | IO[bytes] | None) -> Iterator[bytes]:
    if isinstance(stdin, bytes):
        yield stdin
    elif stdin is not None:
        read = getattr(stdin, "read1", stdin.read)
        while part := read(_BLOCK):
            yield part


def encode_terminal_input(typed: Iterable[TerminalInput]) -> Iterator[bytes]:
    for item in typed:
        if isinstance(item, tuple):
            message: dict[str, object] = {"rows": item[0], "columns": item[1]}
        else:
            message = {"stdin": base64.b64encode(item).decode()}
        yield json.dumps(message).encode() + b"\n"
