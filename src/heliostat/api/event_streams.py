"""Server-sent events: the life of jobs, and what they print, as it happens."""

import asyncio
import contextlib
import json
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from heliostat.api.event_feed import EventFeed, EventFollower, FollowerTooSlow
from heliostat.api.request_context import MAX_ID, CallerDep, ContextDep, IdPath, is_still_authenticated
from heliostat.api.serialization import serialize_event
from heliostat.inotify import Inotify
from heliostat.models import Caller, Job, JobEvent, JobId, JobState
from heliostat.services.context import Context
from heliostat.services.logs.reader import STREAMS, LogTail, open_log_tail, read_stream_order, require_log
from heliostat.services.permissions import may_inspect, require_inspectable_job
from heliostat.store import jobs as stored
from heliostat.store.jobs import get_jobs_without_spec

router = APIRouter(tags=["events"])
_KEEP_ALIVE_SECONDS = 15.0
_CHECK_SECONDS = 3.0  # how long a stream goes on for somebody who is no longer let in
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
    """What happened to the jobs the caller may inspect, oldest first, after a given event; -50: the last 50."""
    if job_id is not None:
        require_inspectable_job(context, caller, job_id)
    events, last = _read_events(context, caller, after or 0, limit, job_id)
    following = str(last) if last is not None else None
    return JSONResponse({"items": [serialize_event(event) for event in events], "next_cursor": following})


@router.get("/events/stream")
async def stream_events(
    request: Request,
    caller: CallerDep,
    context: ContextDep,
    after: EventIdParam = None,
    job_id: Annotated[int | None, Query(ge=1, le=MAX_ID)] = None,
    last_event_id: Annotated[int | None, Header(ge=0, le=MAX_ID)] = None,
) -> Response:
    """The same as it happens. Goes on after `after` (or the browser's Last-Event-ID), else from now."""
    if job_id is not None:
        await run_in_threadpool(require_inspectable_job, context, caller, job_id)
    start = last_event_id if last_event_id is not None else after
    source = _EventSource(context, _Guard(request, caller), job_id, request.app.state.feed)
    return _sse(source.run(start))


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
    """What a job prints as it prints it, until the job is over; goes on with its next attempt.

    After a break, send the offsets reached and, as `from_attempt`, the attempt they belong to.
    """
    job = await run_in_threadpool(require_inspectable_job, context, caller, job_id)
    require_log(context, job)  # told now: once it streams it is too late for a 4xx
    offsets = {"stdout": stdout_offset, "stderr": stderr_offset}
    names = STREAMS if stream == "both" else (stream,)
    wanted = {name: offsets[name] for name in names}
    source = _LogSource(context, job, wanted, _Guard(request, caller), request.app.state)
    return _sse(source.run(attempt, from_attempt))


class _Refused(Exception):
    """Who follows may no longer, or has other rights now: they must ask anew."""


class _Guard:
    """Looks every few seconds whether who follows is still let in."""

    def __init__(self, request: Request, caller: Caller) -> None:
        self.caller = caller
        self._request = request
        self._looked_at = time.monotonic()

    async def check(self) -> None:
        if time.monotonic() - self._looked_at < _CHECK_SECONDS:
            return
        if not await is_still_authenticated(self._request, self.caller):
            raise _Refused
        self._looked_at = time.monotonic()


class _EventSource:
    def __init__(self, context: Context, guard: _Guard, job_id: JobId | None, feed: EventFeed) -> None:
        self._context, self._guard, self._job_id, self._feed = context, guard, job_id, feed
        self._caller = guard.caller
        self._visible: dict[JobId, bool] = {}
        self._position = 0

    async def run(self, after: int | None) -> AsyncGenerator[str]:
        with self._feed.follow() as follower:
            self._position = after if after is not None else await run_in_threadpool(self._newest)
            while True:
                async for text in self._missed():
                    yield text
                async for text in self._live(follower):
                    yield text

    async def _missed(self) -> AsyncIterator[str]:
        while events := await run_in_threadpool(self._stored_after_position):
            await self._guard.check()
            for event in events:
                self._position = event.id
                if await self._may_see(event):
                    yield _event_text(event)

    async def _live(self, follower: EventFollower) -> AsyncIterator[str]:
        """Until we are too far behind."""
        quiet_since = time.monotonic()
        with contextlib.suppress(FollowerTooSlow):
            while True:
                events = await follower.wait_for_events(_CHECK_SECONDS)
                await self._guard.check()
                if events:
                    quiet_since = time.monotonic()
                elif time.monotonic() - quiet_since >= _KEEP_ALIVE_SECONDS:
                    quiet_since = time.monotonic()
                    yield _STILL_HERE
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
            self._visible[event.job_id] = await run_in_threadpool(self._look_up, event.job_id)
        return self._visible[event.job_id]

    def _look_up(self, job_id: JobId) -> bool:
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
    def __init__(self, context: Context, job: Job, offsets: dict[str, int], guard: _Guard, state: State) -> None:
        self._context, self._job, self._offsets, self._guard = context, job, offsets, guard
        self._feed: EventFeed = state.feed
        self._folders: FolderWatcher = state.folder_watch
        self._said_at = time.monotonic()

    async def run(self, attempt: int | None, from_attempt: int | None) -> AsyncGenerator[str]:
        with self._feed.follow() as follower:
            job = self._job = await self._refreshed()  # it may have moved before we followed
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
        """All one attempt prints, until it is over."""
        tails = {
            name: open_log_tail(self._context, self._job, number, name, offset)
            for name, offset in self._offsets.items()
        }
        folder = require_log(self._context, self._job).log_folder(self._job.id)
        for text in self._as_written(tails, number):
            yield text
        job = self._job
        with contextlib.ExitStack() as stack:
            watching = False
            while True:
                if folder is not None and not watching:
                    watching = stack.enter_context(self._folders.watch(folder, follower.wake))
                for tail in tails.values():
                    for chunk in tail.read_new_chunks():
                        self._said_at = time.monotonic()
                        yield _text("chunk", chunk)
                if job.is_terminal or job.attempt > number or (only_this and job.attempt != number):
                    return
                patience = (
                    _CHECK_SECONDS if watching or folder is None or job.state is not JobState.STARTING else 0.002
                )
                job = await self._something(follower, job, patience)
                await self._guard.check()
                if time.monotonic() - self._said_at >= _KEEP_ALIVE_SECONDS:
                    self._said_at = time.monotonic()
                    yield _STILL_HERE

    def _as_written(self, tails: dict[str, LogTail], number: int) -> Iterator[str]:
        """What is there already, in the order it was written."""
        for name, end in (
            read_stream_order(self._context, self._job, number) if 1 <= number <= self._job.attempt else ()
        ):
            if tail := tails.get(name):
                yield from (_text("chunk", chunk) for chunk in tail.read_new_chunks(up_to=end))

    async def _something(self, follower: EventFollower, job: Job, seconds: float) -> Job:
        """Wait for output or for a word about the job: the job then."""
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


def _read_events(
    context: Context, caller: Caller, after: int, limit: int, job_id: JobId | None
) -> tuple[list[JobEvent], int | None]:
    """The visible ones, and where to go on when there may be more."""
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


_STILL_HERE = ": still here\n\n"


def _sse(source: AsyncGenerator[str]) -> Response:
    headers = {"Cache-Control": "no-store"}
    return StreamingResponse(_until_refused(source), media_type="text/event-stream", headers=headers)


async def _until_refused(source: AsyncGenerator[str]) -> AsyncIterator[str]:
    """The end of the answer: whoever asks again is told why."""
    async with contextlib.aclosing(source):
        with contextlib.suppress(_Refused):
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
        """False when the folder cannot be watched (yet)."""
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
