"""Live updates: server-sent events tell an open page that its data changed; it then reloads its fragments.

A commit is mapped to topics (`jobs`, `job:12`, `nodes`, `rules`, `services`). A page gets events only for its own
topics, at most once a second, and less often the more pages are open (see `refresh_rate`).
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Collection, Iterator
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from heliostat.errors import HeliostatError, Invalid, TooManyRequests
from heliostat.services.change_topics import ChangedTopics, match_topics, subscribe_to_commits
from heliostat.services.context import Context
from heliostat.services.permissions import require_inspectable_job
from heliostat.web.refresh_rate import RefreshRateLimiter
from heliostat.web.rendering import PAGE_HEADERS
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest, find_browser

router = APIRouter()
MIN_UPDATE_SECONDS = 1.0
MAX_OPEN_PAGES = 2000
MAX_OPEN_PAGES_PER_USER = 50
_KEEP_ALIVE_SECONDS = 20.0
_MIN_BATCH_SECONDS = 0.05
_MAX_BATCH_SECONDS = 1.0  # with many open pages: their reads then share one cache entry
_PLAIN_TOPICS = frozenset({"jobs", "nodes", "rules", "services"})
_MAX_TOPICS = 8


@router.get("/live")
async def stream_changes(
    request: AuthenticatedDep,
    topic: Annotated[list[str], Query(max_length=_MAX_TOPICS)] = [],  # noqa: B006 - FastAPI copies it
    after: int | None = None,
) -> Response:
    """Server-sent events: `change` with the topics that changed, and `alive` now and then, so that a page notices
    the loss of the server. `after`: the revision that the page shows."""
    for name in topic:
        await run_in_threadpool(_check_topic, request, name)
    hub: LiveUpdateHub = request.http.app.state.live
    events = _event_stream(request, hub, frozenset(topic), after)
    return StreamingResponse(
        events, media_type="text/event-stream", headers=PAGE_HEADERS | {"X-Accel-Buffering": "no"}
    )


class LiveUpdateHub:
    """Subscriptions of open pages. Everything except `_on_commit` runs in the event loop."""

    def __init__(self, context: Context) -> None:
        self.revision = time.time_ns()  # grows with every commit, also over a restart
        self._read_cache = context.read_cache
        self._subscriptions: set[PageSubscription] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._pending = ChangedTopics()
        self.refresh_rate = RefreshRateLimiter()
        subscribe_to_commits(context, self._on_commit)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def detach(self) -> None:
        self._loop = None

    @property
    def poll_interval_seconds(self) -> float:
        """How long a polling page should wait."""
        return max(MIN_UPDATE_SECONDS, len(self._subscriptions) * self.refresh_rate.interval_seconds)

    @contextlib.contextmanager
    def subscribe(self, user: str, topics: frozenset[str]) -> Iterator["PageSubscription"]:
        own_count = sum(subscription.user == user for subscription in self._subscriptions)
        if len(self._subscriptions) >= MAX_OPEN_PAGES or own_count >= MAX_OPEN_PAGES_PER_USER:
            raise TooManyRequests("Too many pages are open.", "Close some of them; this page is not updated.")
        subscription = PageSubscription(user, topics)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    def _on_commit(self, changed: ChangedTopics) -> None:
        self.revision += 1  # commits are serialized
        loop = self._loop
        if loop is None or not self._subscriptions:
            self._read_cache.invalidate()
            return
        with self._lock:
            is_first = not self._pending
            self._pending = self._pending | changed
        if is_first:
            delay = min(_MIN_BATCH_SECONDS + len(self._subscriptions) / 400, _MAX_BATCH_SECONDS)
            with contextlib.suppress(RuntimeError):  # the loop is closing
                loop.call_soon_threadsafe(loop.call_later, delay, self._publish)

    def _publish(self) -> None:
        with self._lock:
            changed, self._pending = self._pending, ChangedTopics()
        self._read_cache.invalidate()
        for subscription in self._subscriptions:
            subscription.add_changes(match_topics(changed, subscription.topics))


class PageSubscription:
    def __init__(self, user: str, topics: frozenset[str]) -> None:
        self.user, self.topics = user, topics
        self._changed: set[str] = set()
        self._has_changes = asyncio.Event()

    def add_changes(self, topics: Collection[str]) -> None:
        if topics:
            self._changed |= set(topics)
            self._has_changes.set()

    async def wait_for_changes(self, timeout_seconds: float) -> set[str]:
        """The topics that changed since the last call; empty after the timeout."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_changes.wait(), timeout_seconds)
        return self.take_changes()

    def take_changes(self) -> set[str]:
        self._has_changes.clear()
        changed, self._changed = self._changed, set()
        return changed


async def _event_stream(
    request: AuthenticatedRequest, hub: LiveUpdateHub, topics: frozenset[str], after: int | None
) -> AsyncIterator[str]:
    try:
        with hub.subscribe(request.user.name, topics) as subscription:
            if after not in (None, hub.revision):
                subscription.add_changes(topics)
            yield "retry: 5000\n: listening\n\n"
            while _is_logged_in(request):
                changed = await subscription.wait_for_changes(_KEEP_ALIVE_SECONDS)
                if not changed:
                    yield "event: alive\ndata:\n\n"
                    continue
                await hub.refresh_rate.wait_for_slot()
                changed |= subscription.take_changes()
                yield f"event: change\ndata: {' '.join(sorted(changed))}\n\n"
                await asyncio.sleep(MIN_UPDATE_SECONDS)
            yield "event: over\ndata: login\n\n"
    except TooManyRequests:
        yield "event: over\ndata: crowded\n\n"


def _is_logged_in(request: AuthenticatedRequest) -> bool:
    try:
        find_browser(request.http, in_use=False)
    except HeliostatError:
        return False
    return True


def _check_topic(request: AuthenticatedRequest, topic: str) -> None:
    if topic in _PLAIN_TOPICS:
        return
    kind, _, number = topic.partition(":")
    if kind != "job" or not (number.isascii() and number.isdecimal() and len(number) < 16):
        raise Invalid("The topic does not exist.", "Topics: jobs, job:NUMBER, nodes, rules, services.")
    require_inspectable_job(request.context, request.caller, int(number))
