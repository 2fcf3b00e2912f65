"""The client's way into a running job."""

import base64
import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


class InsideVerbs:
    _transport: Transport

    def exec(self, job: int, command: Sequence[str], *, stdin: bytes | IO[bytes] | None = None) -> Finished:
        """Runs a command inside a running job of one's own, to its end."""
        entered = self.enter(job, command, stdin=stdin)
        parts = list(entered)
        out, err = (b"".join(part.data for part in parts if part.stream == name) for name in ("stdout", "stderr"))
        return Finished(entered.exit_code, out, err)

    def enter(self, job: int, command: Sequence[str], *, stdin: bytes | IO[bytes] | None = None) -> "Entered":
        """The same as it goes: what it prints, and after the last of it the `exit_code`."""
        return Entered(self._transport, int(job), {"command": list(command)}, _parts(stdin))

    def terminal(
        self, job: int, terminal: "Terminal", typed: Iterable["Typed"], command: Sequence[str] = ()
    ) -> "Entered":
        """The same on a terminal: a shell, or a command. `typed` is read in a thread of its own."""
        order = {"command": list(command), "terminal": terminal._asdict()}
        return Entered(self._transport, int(job), order, _lines(typed))


class Terminal(NamedTuple):
    """The screen somebody sits at."""

    name: str  # its kind: what TERM says
    rows: int
    columns: int


Typed = bytes | tuple[int, int]  # what is typed, or rows and columns that have changed


class Entered:
    """A command inside a job. It is ended when nobody reads on."""

    exit_code: int

    def __init__(
        self, transport: Transport, job: int, order: Mapping[str, object], parts: Iterable[bytes]
    ) -> None:
        self._transport, self._path = transport, f"/jobs/{job}/exec"
        self._first, self._parts = json.dumps(order).encode() + b"\n", parts

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

    def _pass_on(self, send: Send) -> None:
        with suppress(OSError, ValueError, HTTPException):  # it has ended, and reads no more
            for part in self._parts:
                send(part)
            send(None)


def _parts(stdin: bytes | IO[bytes] | None) -> Iterator[bytes]:
    if isinstance(stdin, bytes):
        yield stdin
    elif stdin is not None:
        read = getattr(stdin, "read1", stdin.read)
        while part := read(_BLOCK):
            yield part


def _lines(typed: Iterable[Typed]) -> Iterator[bytes]:
    for one in typed:
        is_size = isinstance(one, tuple)
        said = {"rows": one[0], "columns": one[1]} if is_size else {"stdin": base64.b64encode(bytes(one)).decode()}
        yield json.dumps(said).encode() + b"\n"
