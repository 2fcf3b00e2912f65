"""The client's way into a running job."""

import base64
import json
import threading
from collections.abc import Iterator, Sequence
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
        return Entered(self._transport, int(job), command, stdin)


class Entered:
    """A command inside a job. It is ended when nobody reads on."""

    exit_code: int

    def __init__(
        self, transport: Transport, job: int, command: Sequence[str], stdin: bytes | IO[bytes] | None
    ) -> None:
        self._transport, self._path = transport, f"/jobs/{job}/exec"
        self._first, self._stdin = json.dumps({"command": list(command)}).encode() + b"\n", stdin

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
            if isinstance(self._stdin, bytes):
                send(self._stdin)
            elif self._stdin is not None:
                read = getattr(self._stdin, "read1", self._stdin.read)
                while part := read(_BLOCK):
                    send(part)
            send(None)
