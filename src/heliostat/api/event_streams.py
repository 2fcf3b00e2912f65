"""Endpoints of job events and log output, as lists and as server-sent event streams."""

import asyncio
import contextlib
import json
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Annotated, Any

from fastapi import Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from heliostat.api.event_feed import EventFeed, EventFollower, FollowerTooSlow
from heliostat.api.request_bodies import BodyRouter
from heliostat.api.request_context import MAX_ID, CallerDep, ContextDep, IdPath, is_still_authenticated
from heliostat.api.serialization import serialize_event
from heliostat.api.wait_status_reports import WaitReporter
from heliostat.inotify import Inotify
from heliostat.models import WAITING_STATES, Caller, Job, JobEvent, JobId, JobState
from heliostat.services.context import Context
from heliostat.services.logs.reader import (
    CHUNK_BYTES,
    STREAMS,
    LogTail,
    open_log_tail,
    read_stream_order,
    require_log,
)
from heliostat.services.permissions import may_inspect, require_inspectable_job
from heliostat.store import jobs as stored
from heliostat.store.jobs import get_jobs_without_spec

router = BodyRouter(tags=["events"])
_KEEP_ALIVE_SECONDS = 15.0
_CHECK_SECONDS = 3.0  # interval of checks that the caller is still authenticated
EventIdParam = Annotated[int | None, Query(ge=-MAX_ID, le=MAX_ID)]
OffsetParam = Annotated[int, Query(ge=0, le=MAX_ID)]


@router.get("/events")
def list_events(
    caller: CallerDep,
    context: ContextDep,
    after: EventIdParam = 0,
    job_id: Annotated[int | None, Query(ge=1, le=MAX_ID)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """List events of the jobs that the caller may inspect, oldest first, after a given event; -50: the last 50."""
    if job_id is not None:
        require_inspectable_job(context, caller, job_id)
    events, last = _read_events(context, caller, after or 0, limit, job_id)
    next_cursor = str(last) if last is not None else None
    return JSONResponse({"items": [serialize_event(event) for event in events], "next_cursor": next_cursor})


@router.get("/events/stream")
async def stream_events(
    request: Request,
    caller: CallerDep,
    context: ContextDep,
    after: EventIdParam = None,
    job_id: Annotated[int | None, Query(ge=1, le=MAX_ID)] = None,
    last_event_id: Annotated[int | None, Header(ge=0, le=MAX_ID)] = None,
) -> Response:
    """Stream events as they happen. Starts after `after` or the header Last-Event-ID; default: from now."""
    if job_id is not None:
        await run_in_threadpool(require_inspectable_job, context, caller, job_id)
    limit = context.stream_limit.acquire(caller.user.name)
    start = last_event_id if last_event_id is not None else after
    source = _EventSource(context, _AccessCheck(request, caller), job_id, request.app.state.feed)
    return EventStreamResponse(source.run(start), limit)


@router.get("/jobs/{job_id}/logs/follow")
async def follow_logs(
    request: Request,
    job_id: IdPath,
    caller: CallerDep,
    context: ContextDep,
    stream: Annotated[str, Query(pattern="^(both|stdout|stderr)$")] = "both",
    attempt: Annotated[int | None, Query(ge=1, le=MAX_ID)] = None,
    stdout_offset: OffsetParam = 0,
    stderr_offset: OffsetParam = 0,
    from_attempt: Annotated[int | None, Query(ge=1, le=MAX_ID)] = None,
) -> Response:
    """Stream the output of a job until the job has ended, including further attempts.

    To resume after an interruption, send the offsets reached and, as `from_attempt`, the attempt they belong to.
    """
    job = await run_in_threadpool(require_inspectable_job, context, caller, job_id)
    await run_in_threadpool(require_log, context, job)  # a stream that has started cannot respond with 4xx
    limit = context.stream_limit.acquire(caller.user.name)
    offsets = {"stdout": stdout_offset, "stderr": stderr_offset}
    names = STREAMS if stream == "both" else (stream,)
    start_offsets = {name: offsets[name] for name in names}
    source = _LogSource(context, job, start_offsets, _AccessCheck(request, caller), request.app.state)
    return EventStreamResponse(source.run(attempt, from_attempt), limit)


class _AccessRevoked(Exception):
    """The caller is no longer authenticated or has other permissions now: the stream must be requested again."""


class _AccessCheck:
    """Checks every few seconds that the caller is still authenticated."""

    def __init__(self, request: Request, caller: Caller) -> None:
        self.caller = caller
        self._request = request
        self._checked_at = time.monotonic()

    async def check(self) -> None:
        if time.monotonic() - self._checked_at < _CHECK_SECONDS:
            return
        if not await is_still_authenticated(self._request, self.caller):
            raise _AccessRevoked
        self._checked_at = time.monotonic()


class _EventSource:
    def __init__(self, context: Context, access: _AccessCheck, job_id: JobId | None, feed: EventFeed) -> None:
        self._context, self._access, self._job_id, self._feed = context, access, job_id, feed
        self._caller = access.caller
        self._visible: dict[JobId, bool] = {}
        self._position = 0

    async def run(self, after: int | None) -> AsyncGenerator[str]:
        with self._feed.follow() as follower:
            self._position = after if after is not None else await run_in_threadpool(self._newest)
            while True:
                async for text in self._stored_events():
                    yield text
                async for text in self._live_events(follower):
                    yield text

    async def _stored_events(self) -> AsyncIterator[str]:
        while events := await run_in_threadpool(self._stored_after_position):
            await self._access.check()
            for event in events:
                self._position = event.id
                if await self._may_see(event):
                    yield _event_text(event)

    async def _live_events(self, follower: EventFollower) -> AsyncIterator[str]:
        """Ends when the client is too slow; the missed events are then read from the store."""
        quiet_since = time.monotonic()
        with contextlib.suppress(FollowerTooSlow):
            while True:
                events = await follower.wait_for_events(_CHECK_SECONDS)
                await self._access.check()
                if events:
                    quiet_since = time.monotonic()
                elif time.monotonic() - quiet_since >= _KEEP_ALIVE_SECONDS:
                    quiet_since = time.monotonic()
                    yield _KEEP_ALIVE
                for event in events:
                    if event.id > self._position:
                        self._position = event.id
                        if await self._may_see(event):
                            yield _event_text(event)

    async def _may_see(self, event: JobEvent) -> bool:
        if self._job_id is not None:
            return event.job_id == self._job_id
        if self._caller.user.is_admin:
            return True
        if event.job_id not in self._visible:
            self._visible[event.job_id] = await run_in_threadpool(self._may_inspect, event.job_id)
        return self._visible[event.job_id]

    def _may_inspect(self, job_id: JobId) -> bool:
        with self._context.store.read() as conn:
            job = stored.get_job(conn, job_id)
        return job is not None and may_inspect(self._caller.user, job)

    def _newest(self) -> int:
        with self._context.store.read() as conn:
            return stored.last_event_id(conn)

    def _stored_after_position(self) -> list[JobEvent]:
        with self._context.store.read() as conn:
            return stored.list_events(conn, self._position, 500, self._job_id)


class _LogSource:
    def __init__(
        self, context: Context, job: Job, offsets: dict[str, int], access: _AccessCheck, state: State
    ) -> None:
        self._context, self._job, self._offsets, self._access = context, job, offsets, access
        self._feed: EventFeed = state.feed
        self._folders: FolderWatcher = state.folder_watch
        self._waits = WaitReporter(context)
        self._sent_at = time.monotonic()

    async def run(self, attempt: int | None, from_attempt: int | None) -> AsyncGenerator[str]:
        with self._feed.follow() as follower:
            job = self._job = await self._refreshed()  # its state may have changed before the subscription
            number = attempt or from_attempt or max(job.attempt, 1)
            while True:
                async for text in self._attempt(follower, number, attempt is not None):
                    yield text
                job = self._job = await self._refreshed()
                if attempt is not None or job.is_terminal:
                    break
                number, self._offsets = job.attempt, dict.fromkeys(self._offsets, 0)
        yield _text("end", {"state": job.state.value, "exit_code": job.exit_code})

    async def _attempt(self, follower: EventFollower, number: int, only_this: bool) -> AsyncIterator[str]:
        """Output of one attempt until it has ended."""
        tails, folder = await run_in_threadpool(self._open_tails, number)
        async for text in self._in_blocks(self._existing_output(tails, number)):
            yield text
        job = self._job
        with contextlib.ExitStack() as stack:
            watching = False
            while True:
                if folder is not None and not watching:
                    watching = stack.enter_context(self._folders.watch(folder, follower.wake))
                async for text in self._in_blocks(_new_output(tails)):
                    yield text
                if job.is_terminal or job.attempt > number or (only_this and job.attempt != number):
                    return
                if change := await self._waits.find_change(job):
                    self._sent_at = time.monotonic()
                    yield _text("wait", change)
                timeout = (
                    _CHECK_SECONDS if watching or folder is None or job.state is not JobState.STARTING else 0.002
                )
                if job.state in WAITING_STATES:
                    timeout = min(timeout, self._waits.seconds_until_check)
                job = await self._wait_for_change(follower, job, timeout)
                await self._access.check()
                if time.monotonic() - self._sent_at >= _KEEP_ALIVE_SECONDS:
                    self._sent_at = time.monotonic()
                    yield _KEEP_ALIVE

    def _open_tails(self, number: int) -> tuple[dict[str, LogTail], str | None]:
        tails = {
            name: open_log_tail(self._context, self._job, number, name, offset)
            for name, offset in self._offsets.items()
        }
        return tails, require_log(self._context, self._job).log_folder(self._job.id)

    async def _in_blocks(self, texts: Iterator[str]) -> AsyncIterator[str]:
        """Reads and encodes in another thread, one block at a time: between two blocks a client that has
        disconnected is noticed, and other requests are served."""
        while block := await run_in_threadpool(_join_block, texts):
            self._sent_at = time.monotonic()
            yield block
            await self._access.check()

    def _existing_output(self, tails: dict[str, LogTail], number: int) -> Iterator[str]:
        """In the recorded order of stdout and stderr."""
        for name, end in (
            read_stream_order(self._context, self._job, number) if 1 <= number <= self._job.attempt else ()
        ):
            if tail := tails.get(name):
                yield from (_text("chunk", chunk) for chunk in tail.read_new_chunks(up_to=end))

    async def _wait_for_change(self, follower: EventFollower, job: Job, seconds: float) -> Job:
        """Waits for output or an event of the job; returns its new state."""
        try:
            events = await follower.wait_for_events(seconds)
        except FollowerTooSlow:
            return await self._refreshed()
        return await self._refreshed() if any(event.job_id == job.id for event in events) else job

    async def _refreshed(self) -> Job:
        job = await run_in_threadpool(self._read)
        return job or self._job

    def _read(self) -> Job | None:
        with self._context.store.read() as conn:
            return get_jobs_without_spec(conn, [self._job.id]).get(self._job.id)


def _new_output(tails: dict[str, LogTail]) -> Iterator[str]:
    for tail in tails.values():
        yield from (_text("chunk", chunk) for chunk in tail.read_new_chunks())


def _join_block(texts: Iterator[str]) -> str:
    block, size = [], 0
    while size < CHUNK_BYTES and (text := next(texts, None)) is not None:
        block.append(text)
        size += len(text)
    return "".join(block)


def _read_events(
    context: Context, caller: Caller, after: int, limit: int, job_id: JobId | None
) -> tuple[list[JobEvent], int | None]:
    """Events visible to the caller, and the id to continue after if there may be more."""
    with context.store.read() as conn:
        if after < 0:
            after = max(0, stored.last_event_id(conn) + after)
        events = stored.list_events(conn, after, limit, job_id)
        if caller.user.is_admin or job_id is not None:
            visible = events
        else:
            jobs = get_jobs_without_spec(conn, {event.job_id for event in events})
            visible = [event for event in events if may_inspect(caller.user, jobs[event.job_id])]
    return visible, events[-1].id if len(events) == limit else None


def _event_text(event: JobEvent) -> str:
    return f"id: {event.id}\n" + _text("job", serialize_event(event))


def _text(kind: str, data: dict[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


_KEEP_ALIVE = ": still here\n\n"


class EventStreamResponse(StreamingResponse):
    """Counts as an open stream of its user until it ends. Raises TooManyRequests."""

    def __init__(self, source: AsyncGenerator[str], limit: contextlib.AbstractContextManager[None]) -> None:
        headers = {"Cache-Control": "no-store"}
        super().__init__(_until_revoked(source), media_type="text/event-stream", headers=headers)
        self._limit = contextlib.ExitStack()
        self._limit.enter_context(limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._limit:
            await super().__call__(scope, receive, send)


async def _until_revoked(source: AsyncGenerator[str]) -> AsyncIterator[str]:
    """Ends without an error; the next request of the client gets the cause."""
    async with contextlib.aclosing(source):
        with contextlib.suppress(_AccessRevoked):
            async for text in source:
                yield text


class FolderWatcher:
    """Calls the watchers of a folder when a file there changes, in the event loop."""

    def __init__(self) -> None:
        self._inotify = Inotify()
        self._callbacks: dict[int, set[Callable[[], None]]] = defaultdict(set)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._inotify.descriptor >= 0:
            loop.add_reader(self._inotify.descriptor, self._read)

    def detach(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._inotify.descriptor >= 0:
            loop.remove_reader(self._inotify.descriptor)
            self._inotify.close()

    @contextlib.contextmanager
    def watch(self, folder: str, changed: Callable[[], None]) -> Iterator[bool]:
        """Yields False if the folder cannot be watched, for example because it does not exist yet."""
        number = self._inotify.add_watch(folder)
        if number is None:
            yield False
            return
        self._callbacks[number].add(changed)
        try:
            yield True
        finally:
            self._callbacks[number].discard(changed)
            if not self._callbacks[number]:
                del self._callbacks[number]
                self._inotify.remove_watch(number)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in {number for number, _ in self._inotify.read_changes()}:
                for changed in list(self._callbacks.get(number, ())):
                    changed()
