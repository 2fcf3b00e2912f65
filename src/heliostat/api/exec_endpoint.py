"""Endpoint that runs a command inside a running job.

After the first line, the request is streamed to the standard input of the command; the response streams its output
as lines of JSON. On a terminal the request is lines of JSON as well: typed input and the size of the terminal.
"""

import asyncio
import base64
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from heliostat.api.exec_processes import ExecProcess, PipeProcess, TerminalProcess, TerminalSize
from heliostat.api.exec_request import ExecRequestBody, read_exec_request
from heliostat.api.request_bodies import BodyRouter
from heliostat.api.request_context import CallerDep, ContextDep, IdPath, is_still_authenticated
from heliostat.errors import Conflict, HeliostatError
from heliostat.models import Caller
from heliostat.services.jobs.exec import exec_in_job

router = BodyRouter(tags=["jobs"])
_BLOCK = 64 * 1024
_AUTHENTICATION_SECONDS = 3.0  # interval of checks that the caller is still authenticated
_REMAINING_OUTPUT_SECONDS = 2.0  # for output of its children after its end
_MAX_COMMANDS_PER_USER = 16


@router.post("/jobs/{job_id}/exec")
async def run_command_in_job(request: Request, job_id: IdPath, caller: CallerDep, context: ContextDep) -> Response:
    """Run a command inside one of your running jobs. The body is a line of JSON, `{"command": ["nvidia-smi"]}`,
    followed by its standard input. The response is lines of JSON: `stdout` or `stderr` in base64, then
    `exit_code`."""
    body = ExecRequestBody(request.receive)
    exec_request = await read_exec_request(body)
    terminal = exec_request.terminal
    with contextlib.ExitStack() as stack:
        stack.enter_context(_limit_commands(request, caller))
        term = terminal.name if terminal else ""
        command = await run_in_threadpool(exec_in_job, context, caller, job_id, exec_request.command, term)
        stack.callback(command.close)
        process = await (TerminalProcess.start(command, terminal.size) if terminal else PipeProcess.start(command))
        session = _ExecSession(
            process,
            body.read_terminal_input() if terminal else body.read_stdin(),
            body,
            _AuthenticatedCaller(request, caller),
        )
        return _ExecResponse(session, stack.pop_all().close)


@contextlib.contextmanager
def _limit_commands(request: Request, caller: Caller) -> Iterator[None]:
    """Limits the processes that one user can start on the server."""
    state, name = request.app.state, caller.user.name
    if not hasattr(state, "exec_counts"):
        state.exec_counts = Counter()
    running: Counter[str] = state.exec_counts
    if running[name] >= _MAX_COMMANDS_PER_USER:
        raise Conflict(
            f"You already run {_MAX_COMMANDS_PER_USER} commands inside jobs.", "Wait until one has ended."
        )
    running[name] += 1
    try:
        yield
    finally:
        running[name] -= 1


@dataclass(frozen=True, slots=True)
class _AuthenticatedCaller:
    request: Request
    caller: Caller

    async def wait_until_revoked(self) -> None:
        while await is_still_authenticated(self.request, self.caller):
            await asyncio.sleep(_AUTHENTICATION_SECONDS)


@dataclass(frozen=True, slots=True)
class _ExecSession:
    process: ExecProcess
    input: AsyncIterator[bytes | TerminalSize]
    body: ExecRequestBody
    caller: _AuthenticatedCaller


class _ExecResponse(Response):
    """Ends with the command. Ends the command when the client disconnects or is no longer authenticated."""

    def __init__(self, session: _ExecSession, on_end: Callable[[], None]) -> None:
        super().__init__(media_type="application/x-ndjson")
        self._session, self._process, self._on_end = session, session.process, on_end
        self._chunks_sent = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._exchange(send)
        finally:
            await self._process.terminate()
            self._process.close()
            self._on_end()

    async def _exchange(self, send: Send) -> None:
        lock = asyncio.Lock()

        async def send_line(message: dict[str, object], more: bool = True) -> None:
            async with lock:
                line = json.dumps(message).encode() + b"\n"
                await send({"type": "http.response.body", "body": line, "more_body": more})

        outputs = asyncio.gather(*(self._send_output(stream, send_line) for stream in self._process.outputs))
        stops = [
            asyncio.ensure_future(task)
            for task in (self._receive_input(), self._session.caller.wait_until_revoked())
        ]
        ended = asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait([ended, *stops], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await self._process.terminate()
            await self._send_remaining_output(outputs, lock, stops)
            code = await ended
            await send_line({"exit_code": code}, more=False)
        finally:
            tasks: list[asyncio.Future[Any]] = [outputs, ended, *stops]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_remaining_output(
        self, outputs: asyncio.Future[Any], lock: asyncio.Lock, stops: Sequence[asyncio.Future[Any]]
    ) -> None:
        """Sends all output even to a slow client, but does not wait for a child process that prints nothing."""
        sent_before = -1
        while not outputs.done() and (lock.locked() or sent_before != self._chunks_sent):
            sent_before = self._chunks_sent
            await asyncio.wait([outputs], timeout=_REMAINING_OUTPUT_SECONDS)
            if any(stop.done() for stop in stops):
                return

    async def _send_output(self, stream: str, send_line: Callable[[dict[str, object]], Awaitable[None]]) -> None:
        while part := await self._process.outputs[stream].read(_BLOCK):
            await send_line({stream: base64.b64encode(part).decode()})
            self._chunks_sent += 1

    async def _receive_input(self) -> None:
        """Returns when the client has disconnected."""
        try:
            async for received in self._session.input:
                if isinstance(received, TerminalSize):
                    self._process.resize(received)
                    continue
                with contextlib.suppress(OSError):  # the command has closed its input
                    await self._process.write(received)
        except (ConnectionError, HeliostatError):
            return
        self._process.close_input()
        await self._session.body.wait_for_disconnect()
