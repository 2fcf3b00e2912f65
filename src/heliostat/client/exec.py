"""Commands inside a running job."""

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
    """The screen somebody sits at."""

    name: str  # its kind: what TERM says
    rows: int
    columns: int


TerminalInput = bytes | tuple[int, int]  # what is typed, or rows and columns that have changed


class ExecProcess:
    """A command inside a job: what it prints, then its `exit_code`. It is ended when nobody reads on."""

    exit_code: int

    def __init__(
        self, transport: Transport, job: int, request: Mapping[str, object], parts: Iterable[bytes]
    ) -> None:
        self._transport, self._path = transport, f"/jobs/{job}/exec"
        self._first, self._parts = json.dumps(request).encode() + b"\n", parts

    def __iter__(self) -> Iterator[OutputChunk]:
        with self._transport.open_duplex(self._path) as (send, answer):
            send(self._first)
            reader = threading.Thread(target=self._pass_on, args=(send,), daemon=True)
            reader.start()
            for line in answer():
                said = json.loads(line)
                if "exit_code" in said:
                    self.exit_code = said["exit_code"]
                    return
                for stream, data in said.items():
                    yield OutputChunk(stream, base64.b64decode(data))
        raise ServerUnreachable("The server went away in the middle.", "Look with `helio status`.")

    def read_to_end(self) -> ExecResult:
        """Reads all it prints."""
        parts = list(self)
        out, err = (b"".join(part.data for part in parts if part.stream == name) for name in ("stdout", "stderr"))
        return ExecResult(self.exit_code, out, err)

    def _pass_on(self, send: SendBodyPart) -> None:
        with suppress(OSError, ValueError, HTTPException):  # it has ended, and reads no more
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
    for one in typed:
        is_size = isinstance(one, tuple)
        said = {"rows": one[0], "columns": one[1]} if is_size else {"stdin": base64.b64encode(bytes(one)).decode()}
        yield json.dumps(said).encode() + b"\n"
