"""One stream per open page that says "something you show has changed"; the page then asks for its parts anew.

A commit is turned into topics (`jobs`, `job:12`, `nodes`, `rules`, `services`). A page hears only of its own
topics, at most once a second, and less often the more pages are open (see `pace`).
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
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest

router = APIRouter()
MIN_UPDATE_SECONDS = 1.0
MAX_OPEN_PAGES = 2000
MAX_OPEN_PAGES_PER_USER = 50
_KEEP_ALIVE_SECONDS = 20.0
_LEAST_GATHERED_SECONDS = 0.05
_MOST_GATHERED_SECONDS = 1.0  # when many pages listen: what they read meanwhile is shared
_PLAIN_TOPICS = frozenset({"jobs", "nodes", "rules", "services"})
_MOST_TOPICS = 8


@router.get("/live")
async def stream_changes(
    visit: AuthenticatedDep, topic: Annotated[list[str], Query(max_length=_MOST_TOPICS)], after: int | None = None
) -> Response:
    """Server-sent events: `change` with the topics that changed. `after`: how new is what the page shows."""
    for name in topic:
        await run_in_threadpool(_check_topic, visit, name)
    hub: LiveUpdateHub = visit.request.app.state.live
    source = _tell(visit, hub, frozenset(topic), after)
    return StreamingResponse(
        source, media_type="text/event-stream", headers=PAGE_HEADERS | {"X-Accel-Buffering": "no"}
    )


class LiveUpdateHub:
    """Who listens to what. All but `_on_commit` happens in the event loop."""

    def __init__(self, context: Context) -> None:
        self.revision = time.time_ns()  # another one after every commit that a page may show, also after a restart
        self._recent = context.read_cache
        self._listeners: set[PageSubscription] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._waiting = ChangedTopics()
        self.refresh_rate = RefreshRateLimiter()
        subscribe_to_commits(context, self._on_commit)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def detach(self) -> None:
        self._loop = None

    @property
    def poll_interval_seconds(self) -> float:
        """How long a page that asks on its own should rest."""
        return max(MIN_UPDATE_SECONDS, len(self._listeners) * self.refresh_rate.interval_seconds)

    @contextlib.contextmanager
    def subscribe(self, user: str, topics: frozenset[str]) -> Iterator["PageSubscription"]:
        mine = sum(listener.user == user for listener in self._listeners)
        if len(self._listeners) >= MAX_OPEN_PAGES or mine >= MAX_OPEN_PAGES_PER_USER:
            raise TooManyRequests("Too many pages are open.", "Close some; this one is not live.")
        listener = PageSubscription(user, topics)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def _on_commit(self, changed: ChangedTopics) -> None:
        self.revision += 1  # commits come one after the other
        loop = self._loop
        if loop is None or not self._listeners:
            self._recent.invalidate()
            return
        with self._lock:
            is_first = not self._waiting
            self._waiting = self._waiting | changed
        if is_first:
            wait = min(_LEAST_GATHERED_SECONDS + len(self._listeners) / 400, _MOST_GATHERED_SECONDS)
            with contextlib.suppress(RuntimeError):  # the loop is closing
                loop.call_soon_threadsafe(loop.call_later, wait, self._hand_out)

    def _hand_out(self) -> None:
        with self._lock:
            changed, self._waiting = self._waiting, ChangedTopics()
        self._recent.invalidate()
        for listener in self._listeners:
            listener.add_changes(match_topics(changed, listener.topics))


class PageSubscription:
    def __init__(self, user: str, topics: frozenset[str]) -> None:
        self.user, self.topics = user, topics
        self._changed: set[str] = set()
        self._some = asyncio.Event()

    def add_changes(self, topics: Collection[str]) -> None:
        if topics:
            self._changed |= set(topics)
            self._some.set()

    async def wait_for_changes(self, timeout_seconds: float) -> set[str]:
        """The topics that changed since the last call; none when the time is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._some.wait(), timeout_seconds)
        return self.take_changes()

    def take_changes(self) -> set[str]:
        self._some.clear()
        changed, self._changed = self._changed, set()
        return changed


async def _tell(
    visit: AuthenticatedRequest, hub: LiveUpdateHub, topics: frozenset[str], after: int | None
) -> AsyncIterator[str]:
    try:
        with hub.subscribe(visit.user.name, topics) as listener:
            if after not in (None, hub.revision):
                listener.add_changes(topics)
            yield "retry: 5000\n: listening\n\n"
            while _is_logged_in(visit):
                changed = await listener.wait_for_changes(_KEEP_ALIVE_SECONDS)
                if not changed:
                    yield ": still here\n\n"
                    continue
                await hub.refresh_rate.wait_for_slot()
                changed |= listener.take_changes()
                yield f"event: change\ndata: {' '.join(sorted(changed))}\n\n"
                await asyncio.sleep(MIN_UPDATE_SECONDS)
            yield "event: over\ndata: login\n\n"
    except TooManyRequests:
        yield "event: over\ndata: crowded\n\n"


def _is_logged_in(visit: AuthenticatedRequest) -> bool:
    try:
        visit.context.identities.web_logins.require_browser(visit.secret, in_use=False)
    except HeliostatError:
        return False
    return True


def _check_topic(visit: AuthenticatedRequest, topic: str) -> None:
    if topic in _PLAIN_TOPICS:
        return
    kind, _, number = topic.partition(":")
    if kind != "job" or not (number.isascii() and number.isdecimal() and len(number) < 16):
        raise Invalid("There is no such topic.", "Topics are jobs, job:NUMBER, nodes, rules and services.")
    require_inspectable_job(visit.context, visit.caller, int(number))
