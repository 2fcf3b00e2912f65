"""Runs a command inside a running job: what follows the first line of the request goes to its standard input as it
comes, and the answer says line by line what it prints, as it does. On a terminal the request is lines too: what is
typed, and how big the screen is.
"""

import asyncio
import base64
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from heliostat.api.exec_process import ExecProcess, PipeProcess, TerminalProcess, TerminalSize
from heliostat.api.exec_request import ExecRequestBody, read_exec_request
from heliostat.api.request_context import CallerDep, ContextDep, IdPath, is_still_authenticated
from heliostat.errors import Conflict, HeliostatError
from heliostat.models import Caller
from heliostat.services.jobs.exec import exec_in_job

router = APIRouter(tags=["jobs"])
_BLOCK = 64 * 1024
_CHECK_SECONDS = 3.0  # how long it goes on for somebody who is no longer let in
_LEFT_SECONDS = 2.0  # for what its children still print once it has ended
_MOST_AT_ONCE = 16  # of one person


@router.post("/jobs/{job_id}/exec")
async def run_command_in_job(request: Request, job_id: IdPath, caller: CallerDep, context: ContextDep) -> Response:
    """Run a command inside a running job of one's own. The body is a line of JSON, `{"command": ["nvidia-smi"]}`,
    then its standard input. The answer is lines of JSON: `stdout` or `stderr` in base64, at last `exit_code`."""
    body = ExecRequestBody(request.receive)
    order = await read_exec_request(body)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_counted(request, caller))
        term = order.terminal.name if order.terminal else ""
        inside = await run_in_threadpool(exec_in_job, context, caller, job_id, order.command, term)
        stack.callback(inside.close)
        process = await (
            TerminalProcess.start(inside, order.terminal.size) if order.terminal else PipeProcess.start(inside)
        )
        talk = _Talk(
            process,
            body.read_terminal_input() if order.terminal else body.read_stdin(),
            body,
            _Asker(request, caller),
        )
        return _Conversation(talk, stack.pop_all().close)


@contextlib.contextmanager
def _counted(request: Request, caller: Caller) -> Iterator[None]:
    """One person may not fill the machine with processes of the server."""
    state, name = request.app.state, caller.user.name
    if not hasattr(state, "running_inside"):
        state.running_inside = Counter()
    running: Counter[str] = state.running_inside
    if running[name] >= _MOST_AT_ONCE:
        raise Conflict(f"You run {_MOST_AT_ONCE} commands inside jobs already.", "Wait until one has ended.")
    running[name] += 1
    try:
        yield
    finally:
        running[name] -= 1


@dataclass(frozen=True, slots=True)
class _Asker:
    request: Request
    caller: Caller

    async def until_shut_out(self) -> None:
        while await is_still_authenticated(self.request, self.caller):
            await asyncio.sleep(_CHECK_SECONDS)


@dataclass(frozen=True, slots=True)
class _Talk:
    process: ExecProcess
    heard: AsyncIterator[bytes | TerminalSize]
    body: ExecRequestBody
    asker: _Asker


class _Conversation(Response):
    """Ends when the command does; when whoever asked goes away or is shut out, the command is ended."""

    def __init__(self, talk: _Talk, over: Callable[[], None]) -> None:
        super().__init__(media_type="application/x-ndjson")
        self._talk_of, self._process, self._over = talk, talk.process, over
        self._told = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._talk(send)
        finally:
            await self._process.terminate()
            self._process.close()
            self._over()

    async def _talk(self, send: Send) -> None:
        lock = asyncio.Lock()

        async def tell(said: dict[str, object], more: bool = True) -> None:
            async with lock:
                line = json.dumps(said).encode() + b"\n"
                await send({"type": "http.response.body", "body": line, "more_body": more})

        outputs = asyncio.gather(*(self._print(stream, tell) for stream in self._process.outputs))
        others = [asyncio.ensure_future(one) for one in (self._listen(), self._talk_of.asker.until_shut_out())]
        ended = asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait([ended, *others], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await self._process.terminate()
            await self._print_the_rest(outputs, lock, others)
            code = await ended
            await tell({"exit_code": code}, more=False)
        finally:
            rest: list[asyncio.Future[Any]] = [outputs, ended, *others]
            for one in rest:
                one.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

    async def _print_the_rest(
        self, outputs: asyncio.Future[Any], lock: asyncio.Lock, others: Sequence[asyncio.Future[Any]]
    ) -> None:
        """A slow reader gets all of it; a child that goes on in silence is not waited for."""
        told = -1
        while not outputs.done() and (lock.locked() or told != self._told):
            told = self._told
            await asyncio.wait([outputs], timeout=_LEFT_SECONDS)
            if any(one.done() for one in others):
                return

    async def _print(self, stream: str, tell: Callable[[dict[str, object]], Awaitable[None]]) -> None:
        while part := await self._process.outputs[stream].read(_BLOCK):
            await tell({stream: base64.b64encode(part).decode()})
            self._told += 1

    async def _listen(self) -> None:
        """Returns when nobody is there any more."""
        try:
            async for heard in self._talk_of.heard:
                if isinstance(heard, TerminalSize):
                    self._process.resize(heard)
                    continue
                with contextlib.suppress(OSError):  # it reads no more
                    await self._process.write(heard)
        except (ConnectionError, HeliostatError):
            return
        self._process.close_input()
        await self._talk_of.body.wait_for_disconnect()
