"""Commands inside a running job."""

import base64
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import IO, NamedTuple

from heliostat.client.transport import Send, Transport
from heliostat.errors import ServerUnreachable

_BLOCK = 64 * 1024


class Printed(NamedTuple):
    stream: str  # stdout, stderr
    data: bytes


@dataclass(frozen=True, slots=True)
class Finished:
    exit_code: int
    stdout: bytes
    stderr: bytes


class Terminal(NamedTuple):
    """The screen somebody sits at."""

    name: str  # its kind: what TERM says
    rows: int
    columns: int


Typed = bytes | tuple[int, int]  # what is typed, or rows and columns that have changed


class Execution:
    """A command inside a job: what it prints, then its `exit_code`. It is ended when nobody reads on."""

    exit_code: int

    def __init__(
        self, transport: Transport, job: int, request: Mapping[str, object], parts: Iterable[bytes]
    ) -> None:
        self._transport, self._path = transport, f"/jobs/{job}/exec"
        self._first, self._parts = json.dumps(request).encode() + b"\n", parts

    def __iter__(self) -> Iterator[Printed]:
        with self._transport.duplex(self._path) as (send, answer):
            send(self._first)
            reader = threading.Thread(target=self._pass_on, args=(send,), daemon=True)
            reader.start()
            for line in answer():
                said = json.loads(line)
                if "exit_code" in said:
                    self.exit_code = said["exit_code"]
                    return
                for stream, data in said.items():
                    yield Printed(stream, base64.b64decode(data))
        raise ServerUnreachable("The server went away in the middle.", "Look with `helio status`.")

    def finish(self) -> Finished:
        """Reads all it prints."""
        parts = list(self)
        out, err = (b"".join(part.data for part in parts if part.stream == name) for name in ("stdout", "stderr"))
        return Finished(self.exit_code, out, err)

    def _pass_on(self, send: Send) -> None:
        with suppress(OSError, ValueError, HTTPException):  # it has ended, and reads no more
            for part in self._parts:
                send(part)
            send(None)


def standard_input(stdin: bytes | IO[bytes] | None) -> Iterator[bytes]:
    if isinstance(stdin, bytes):
        yield stdin
    elif stdin is not None:
        read = getattr(stdin, "read1", stdin.read)
        while part := read(_BLOCK):
            yield part


def terminal_input(typed: Iterable[Typed]) -> Iterator[bytes]:
    for one in typed:
        is_size = isinstance(one, tuple)
        said = {"rows": one[0], "columns": one[1]} if is_size else {"stdin": base64.b64encode(bytes(one)).decode()}
        yield json.dumps(said).encode() + b"\n"
