"""What somebody says who runs a command inside a job: first what to run, then what is typed."""

import asyncio
import base64
import binascii
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive

from heliostat.api.exec_process import TerminalSize
from heliostat.errors import BadRequest, TooLarge

_LONGEST_LINE = 1024 * 1024
_LINE_SECONDS = 10.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}", re.ASCII)
_MOST_CHARACTERS = 10_000
_HINT = 'The first line of the body is {"command": ["nvidia-smi"]}.'
_TERMINAL_HINT = 'It is {"name": "xterm-256color", "rows": 24, "columns": 80}.'
_TYPED_HINT = 'Lines after the first are {"stdin": "base64"} or {"rows": 24, "columns": 80}.'


@dataclass(frozen=True, slots=True)
class TerminalSpec:
    name: str  # what TERM says
    size: TerminalSize


@dataclass(frozen=True, slots=True)
class ExecRequest:
    command: tuple[str, ...]  # none: a shell
    terminal: TerminalSpec | None


class ExecRequestBody:
    """The request as it comes in. Each reader raises ConnectionError when whoever asked has gone."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._kept, self._more = receive, b"", True

    async def read_line(self) -> bytes:
        while b"\n" not in self._kept and self._more:
            if len(self._kept) > _LONGEST_LINE:
                raise TooLarge("A line is too long.", "Send what is typed in parts.")
            self._kept += await self._next()
        line, _, self._kept = self._kept.partition(b"\n")
        return line

    async def read_stdin(self) -> AsyncIterator[bytes]:
        yield self._kept
        while self._more:
            yield await self._next()

    async def read_terminal_input(self) -> AsyncIterator[bytes | TerminalSize]:
        while self._more or self._kept:
            if line := await self.read_line():
                yield _typed(line)

    async def wait_for_disconnect(self) -> None:
        """Once all was read there is nothing to come but the end of the connection."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError
        self._more = bool(message.get("more_body"))
        part: bytes = message.get("body", b"")
        return part


async def read_exec_request(body: ExecRequestBody) -> ExecRequest:
    try:
        async with asyncio.timeout(_LINE_SECONDS):
            said = json.loads(await body.read_line())
    except (ValueError, RecursionError):
        raise BadRequest("The first line of the body is not JSON.", _HINT) from None
    except (TimeoutError, ConnectionError):
        raise BadRequest("The first line of the body did not come.", _HINT) from None
    if not isinstance(said, dict) or said.keys() - {"command", "terminal"}:
        raise BadRequest("The first line says no command.", _HINT)
    terminal = _terminal(said["terminal"]) if said.get("terminal") is not None else None
    words = said.get("command", [] if terminal else None)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadRequest("The first line says no command.", _HINT)
    return ExecRequest(tuple(words), terminal)


def _terminal(said: Any) -> TerminalSpec:
    if not isinstance(said, dict) or said.keys() != {"name", "rows", "columns"}:
        raise BadRequest("The terminal is not described.", _TERMINAL_HINT)
    if not isinstance(said["name"], str) or not _NAME.fullmatch(said["name"]):
        raise BadRequest("The terminal has no proper name.", _TERMINAL_HINT)
    return TerminalSpec(said["name"], _size(said, _TERMINAL_HINT))


def _typed(line: bytes) -> bytes | TerminalSize:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        raise BadRequest("A line of the body is not JSON.", _TYPED_HINT) from None
    if isinstance(said, dict) and isinstance(said.get("stdin"), str):
        try:
            return base64.b64decode(said["stdin"], validate=True)
        except (binascii.Error, ValueError):
            raise BadRequest("What was typed is not in base64.", _TYPED_HINT) from None
    return _size(said, _TYPED_HINT)


def _size(said: Any, hint: str) -> TerminalSize:
    if isinstance(said, dict):
        rows, columns = said.get("rows"), said.get("columns")
        if all(type(one) is int and 0 < one <= _MOST_CHARACTERS for one in (rows, columns)):
            return TerminalSize(int(rows or 0), int(columns or 0))
    raise BadRequest("The size of the terminal is not in rows and columns.", hint)
