"""Runs a command inside a running job: what follows the first line of the request goes to its standard input as it
comes, and the answer says line by line what it prints, as it does.
"""

import asyncio
import base64
import contextlib
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from heliostat.api.deps import CallerDep, ContextDep, IdPath, is_still
from heliostat.errors import BadRequest, Conflict, TooLarge
from heliostat.models import Caller
from heliostat.services.inside import Inside, enter_job

router = APIRouter(tags=["jobs"])
_LONGEST_LINE = 1024 * 1024
_LINE_SECONDS = 10.0
_BLOCK = 64 * 1024
_CHECK_SECONDS = 3.0  # how long it goes on for somebody who is no longer let in
_LEFT_SECONDS = 2.0  # for what its children still print once it has ended
_TERM_SECONDS = 3.0
_MOST_AT_ONCE = 16  # of one person


@router.post("/jobs/{job_id}/exec")
async def run_inside(request: Request, job_id: IdPath, caller: CallerDep, context: ContextDep) -> Response:
    """Run a command inside a running job of one's own. The body is a line of JSON, `{"command": ["nvidia-smi"]}`,
    then its standard input. The answer is lines of JSON: `stdout` or `stderr` in base64, at last `exit_code`."""
    body = _Body(request.receive)
    command = await _command(body)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_counted(request, caller))
        inside = await run_in_threadpool(enter_job, context, caller, job_id, command)
        stack.callback(inside.close)
        process = await _Running.start(inside)
        return _Conversation(process, body, _Asker(request, caller), stack.pop_all().close)


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
        while await is_still(self.request, self.caller):
            await asyncio.sleep(_CHECK_SECONDS)


class _Body:
    """The request as it comes in."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._kept, self._more = receive, b"", True

    async def line(self) -> bytes:
        while b"\n" not in self._kept and self._more:
            if len(self._kept) > _LONGEST_LINE:
                raise TooLarge("The first line is too long.", 'It is {"command": [...]}; its input follows it.')
            self._kept += await self._next()
        line, _, self._kept = self._kept.partition(b"\n")
        return line

    async def rest(self) -> AsyncIterator[bytes]:
        """ConnectionError when whoever asked has gone."""
        yield self._kept
        while self._more:
            yield await self._next()

    async def until_gone(self) -> None:
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


async def _command(body: _Body) -> list[str]:
    hint = 'The first line of the body is {"command": ["nvidia-smi"]}.'
    try:
        async with asyncio.timeout(_LINE_SECONDS):
            said = json.loads(await body.line())
    except (ValueError, RecursionError):
        raise BadRequest("The first line of the body is not JSON.", hint) from None
    except (TimeoutError, ConnectionError):
        raise BadRequest("The first line of the body did not come.", hint) from None
    words = said.get("command") if isinstance(said, dict) and said.keys() == {"command"} else None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadRequest("The first line says no command.", hint)
    return words


class _Running:
    """A program, its pipes as streams. Started by Python itself: uvloop's own way lends descriptors to others."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.outputs = {"stdout": asyncio.StreamReader(), "stderr": asyncio.StreamReader()}
        self.stdin: asyncio.StreamWriter
        self._over = asyncio.Event()

    @classmethod
    async def start(cls, inside: Inside) -> "_Running":
        try:
            running = cls(await run_in_threadpool(_spawn, inside))
        except OSError as error:
            raise Conflict(f"It cannot be started: {error.strerror}.", "See the server's log.") from error
        await running._connect()
        return running

    async def wait(self) -> int:
        """The exit code as a shell tells it."""
        await self._over.wait()
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    async def end(self) -> None:
        """TERM, and KILL for what is left; already gone is success."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._over.is_set():
                break
            os.killpg(self._process.pid, number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), _TERM_SECONDS)

    def close(self) -> None:
        self.stdin.close()
        for transport in self._transports:
            transport.close()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        self._watch(loop, os.pidfd_open(self._process.pid))
        self._transports = [
            (await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe))[0]
            for reader, pipe in zip(
                self.outputs.values(), (self._process.stdout, self._process.stderr), strict=True
            )
        ]
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, self._process.stdin)
        self.stdin = asyncio.StreamWriter(transport, protocol, None, loop)

    def _watch(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        def ended() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self._over.set()

        loop.add_reader(descriptor, ended)


def _spawn(inside: Inside) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        inside.argv,
        env=dict(inside.environment),
        cwd="/",
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=inside.descriptors,
        start_new_session=True,
    )


class _Conversation(Response):
    """Ends when the command does; when whoever asked goes away or is shut out, the command is ended."""

    def __init__(self, process: _Running, body: _Body, asker: _Asker, over: Callable[[], None]) -> None:
        super().__init__(media_type="application/x-ndjson")
        self._process, self._body, self._asker, self._over = process, body, asker, over
        self._told = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._talk(send)
        finally:
            await self._process.end()
            self._process.close()
            self._over()

    async def _talk(self, send: Send) -> None:
        lock = asyncio.Lock()

        async def tell(said: dict[str, object], more: bool = True) -> None:
            async with lock:
                line = json.dumps(said).encode() + b"\n"
                await send({"type": "http.response.body", "body": line, "more_body": more})

        outputs = asyncio.gather(self._print("stdout", tell), self._print("stderr", tell))
        others = [asyncio.ensure_future(self._listen()), asyncio.ensure_future(self._asker.until_shut_out())]
        ended = asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait([ended, *others], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await self._process.end()
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
        stdin = self._process.stdin
        try:
            async for part in self._body.rest():
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    stdin.write(part)
                    await stdin.drain()
        except (ConnectionError, TooLarge):
            return
        stdin.close()
        await self._body.until_gone()
