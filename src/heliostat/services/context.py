"""The service context: store, engine, controller, caches and limits that services use."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from heliostat.auth.authentication import Authenticator
from heliostat.config import Settings
from heliostat.controller.controller import Controller
from heliostat.controller.forecaster import Forecaster
from heliostat.controller.node_inventory import NodeInventory
from heliostat.controller.shares_and_quotas import SchedulingRules
from heliostat.engines.contract import Engine, RunsPrograms
from heliostat.errors import Conflict, TooManyRequests
from heliostat.models import JobId
from heliostat.services.monitoring_state import MonitoringState
from heliostat.services.pause_state import PauseState
from heliostat.services.public_urls import PublicUrls
from heliostat.store.database import Store, StoreChanges
from heliostat.store.samples import SampleStore
from heliostat.store.uploads import UploadStore

_MAX_CONCURRENT = 4
_MAX_STREAMS, _MAX_STREAMS_PER_USER = 5000, 200  # of events and logs, and waits for jobs
T = TypeVar("T")
_CACHE_SECONDS = 2.0
_RECENT_JOBS_SECONDS, _PAST_USAGE_SECONDS = 30.0, 3600.0  # for hints at submission
_MAX_ENTRIES = 500


class ReadCache:
    """A cache of reads for the many pages that refresh after the same change.

    `invalidate` is called before pages are notified of a change. A read that began before that is not cached, so a
    notified page never gets older data.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, seconds: float = _CACHE_SECONDS) -> None:
        self._clock, self._seconds = clock, seconds
        self._lock = threading.Lock()
        self._generation = 0
        self._entries: dict[Hashable, tuple[float, Any]] = {}

    def get_or_load(self, key: Hashable, load: Callable[[], T]) -> T:
        began = self._clock()
        with self._lock:
            generation = self._generation
            entry = self._entries.get(key)
        if entry is not None and began - entry[0] < self._seconds:
            cached: T = entry[1]
            return cached
        value = load()
        with self._lock:
            if generation == self._generation:
                if len(self._entries) >= _MAX_ENTRIES:
                    self._entries.clear()
                self._entries[key] = (began, value)
        return value

    def invalidate(self) -> None:
        """Called after a change, before pages are notified."""
        with self._lock:
            self._generation += 1
            self._entries.clear()


class ReplicaTraffic:
    """How many requests the proxy has open with each replica. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: Counter[JobId] = Counter()
        self.services_version = 0  # increases with every change of services

    def on_commit(self, changes: StoreChanges) -> None:
        if changes.services_changed:
            self.services_version += 1

    def open_requests_of(self, job_id: JobId) -> int:
        return self._open.get(job_id, 0)

    def jobs_with_open_requests(self) -> frozenset[JobId]:
        with self._lock:
            return frozenset(self._open)

    @contextlib.contextmanager
    def track_request(self, job_id: JobId) -> Iterator[None]:
        """Counts a request as open within the block."""
        with self._lock:
            self._open[job_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._open[job_id] -= 1
                if not self._open[job_id]:
                    del self._open[job_id]


class ConcurrencyLimit:
    """A limit for slow requests, per user and in total.

    Thread-safe. A request above the limit fails at once, because waiting would occupy a thread.
    """

    def __init__(self, noun: str, maximum: int = _MAX_CONCURRENT, per_user: int = 1) -> None:
        self._noun, self._maximum, self._per_user = noun, maximum, per_user
        self._lock = threading.Lock()
        self._active: Counter[str] = Counter()

    @contextlib.contextmanager
    def acquire(self, user: str) -> Iterator[None]:
        """Raises TooManyRequests."""
        with self._lock:
            if self._active[user] >= self._per_user:
                raise self._too_many()
            if self._active.total() >= self._maximum:
                raise TooManyRequests("Too many concurrent requests.", "Try again in a few seconds.")
            self._active[user] += 1
        try:
            yield
        finally:
            with self._lock:
                self._active[user] -= 1
                if not self._active[user]:
                    del self._active[user]

    def _too_many(self) -> TooManyRequests:
        if self._per_user == 1:
            return TooManyRequests(f"Your previous {self._noun} is still running.", "Wait until it has ended.")
        return TooManyRequests(f"You have {self._per_user} open {self._noun}s.", "Close some of them.")


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Context:
    settings: Settings
    store: Store
    engine: Engine
    node_inventory: NodeInventory
    controller: Controller
    authenticator: Authenticator
    scheduling_rules: SchedulingRules
    forecaster: Forecaster
    samples: SampleStore
    uploads: UploadStore
    read_cache: ReadCache = field(default_factory=ReadCache)
    recent_jobs: ReadCache = field(default_factory=lambda: ReadCache(seconds=_RECENT_JOBS_SECONDS))
    past_usage: ReadCache = field(default_factory=lambda: ReadCache(seconds=_PAST_USAGE_SECONDS))
    import_limit: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit("file"))
    search_limit: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit("search"))
    preview_limit: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit("preview"))
    report_limit: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit("report"))
    upload_limit: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit("upload", maximum=1000))
    stream_limit: ConcurrencyLimit = field(
        default_factory=lambda: ConcurrencyLimit("stream", _MAX_STREAMS, _MAX_STREAMS_PER_USER)
    )
    notebook_limit: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit("notebook"))
    now: Callable[[], datetime] = field(default=utc_now)
    traffic: ReplicaTraffic = field(default_factory=ReplicaTraffic)
    public_urls: PublicUrls = field(default_factory=PublicUrls)
    pause: PauseState = field(default_factory=PauseState)
    monitoring: MonitoringState = field(default_factory=MonitoringState)


def require_program_engine(context: Context) -> RunsPrograms:
    """The engine, if it runs real programs with files, ports and commands. Raises Conflict."""
    if not isinstance(context.engine, RunsPrograms):
        raise Conflict(
            f"Jobs of the engine {context.engine.name} are simulated: they have no output, files or ports.",
            "Use the local engine or Slurm to run programs.",
        )
    return context.engine


def attach_endpoints(context: Context) -> None:
    """Bind connections to jobs to the running event loop."""
    if isinstance(context.engine, RunsPrograms):
        context.engine.attach_endpoints()


async def detach_endpoints(context: Context) -> None:
    """Called before that event loop ends."""
    if isinstance(context.engine, RunsPrograms):
        await context.engine.detach_endpoints()
