"""Parses the request of the exec endpoint: the command, then its standard input or terminal input."""

import asyncio
import base64
import binascii
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive

from heliostat.api.exec_processes import TerminalSize
from heliostat.errors import BadRequest, TooLarge

_MAX_LINE_BYTES = 1024 * 1024
_LINE_SECONDS = 10.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}", re.ASCII)
_MAX_TERMINAL_SIZE = 10_000  # characters
_HINT = 'Send {"command": ["nvidia-smi"]} as the first line of the body.'
_TERMINAL_HINT = 'Send {"name": "xterm-256color", "rows": 24, "columns": 80}.'
_INPUT_HINT = 'After the first line, send {"stdin": "base64"} or {"rows": 24, "columns": 80}.'


@dataclass(frozen=True, slots=True)
class TerminalSpec:
    name: str  # the value of TERM
    size: TerminalSize


@dataclass(frozen=True, slots=True)
class ExecRequest:
    command: tuple[str, ...]  # empty: a shell
    terminal: TerminalSpec | None


class ExecRequestBody:
    """The request as it arrives. Each method raises ConnectionError if the client has disconnected."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._buffer, self._more = receive, b"", True

    async def read_line(self) -> bytes:
        while b"\n" not in self._buffer and self._more:
            if len(self._buffer) > _MAX_LINE_BYTES:
                raise TooLarge("A line is too long.", "Send the input in smaller parts.")
            self._buffer += await self._next()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    async def read_stdin(self) -> AsyncIterator[bytes]:
        yield self._buffer
        while self._more:
            yield await self._next()

    async def read_terminal_input(self) -> AsyncIterator[bytes | TerminalSize]:
        while self._more or self._buffer:
            if line := await self.read_line():
                yield _parse_terminal_input(line)

    async def wait_for_disconnect(self) -> None:
        """Call it after the whole body was read."""
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
            message = json.loads(await body.read_line())
    except (ValueError, RecursionError):
        raise BadRequest("The first line of the body is not JSON.", _HINT) from None
    except (TimeoutError, ConnectionError):
        raise BadRequest("The first line of the body is missing.", _HINT) from None
    if not isinstance(message, dict) or message.keys() - {"command", "terminal"}:
        raise BadRequest("The first line has no valid command.", _HINT)
    terminal = _parse_terminal(message["terminal"]) if message.get("terminal") is not None else None
    words = message.get("command", [] if terminal else None)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadRequest("The first line has no valid command.", _HINT)
    return ExecRequest(tuple(words), terminal)


def _parse_terminal(value: Any) -> TerminalSpec:
    if not isinstance(value, dict) or value.keys() != {"name", "rows", "columns"}:
        raise BadRequest("The description of the terminal is not valid.", _TERMINAL_HINT)
    if not isinstance(value["name"], str) or not _NAME.fullmatch(value["name"]):
        raise BadRequest("The name of the terminal is not valid.", _TERMINAL_HINT)
    return TerminalSpec(value["name"], _parse_size(value, _TERMINAL_HINT))


def _parse_terminal_input(line: bytes) -> bytes | TerminalSize:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise BadRequest("A line of the body is not JSON.", _INPUT_HINT) from None
    if isinstance(message, dict) and isinstance(message.get("stdin"), str):
        try:
            return base64.b64decode(message["stdin"], validate=True)
        except (binascii.Error, ValueError):
            raise BadRequest("stdin is not valid base64.", _INPUT_HINT) from None
    return _parse_size(message, _INPUT_HINT)


def _parse_size(value: Any, hint: str) -> TerminalSize:
    if isinstance(value, dict):
        rows, columns = value.get("rows"), value.get("columns")
        if all(type(number) is int and 0 < number <= _MAX_TERMINAL_SIZE for number in (rows, columns)):
            return TerminalSize(int(rows or 0), int(columns or 0))
    raise BadRequest("The size of the terminal is not valid.", hint)
