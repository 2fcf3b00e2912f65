"""The running parts that services act upon."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from heliostat.auth.identities import Identities
from heliostat.config import Settings
from heliostat.controller.controller import Controller
from heliostat.controller.forecaster import Forecaster
from heliostat.controller.node_inventory import NodeInventory
from heliostat.controller.shares_and_quotas import SchedulingRules
from heliostat.engines.contract import Engine, RunsPrograms
from heliostat.errors import Conflict, TooManyRequests
from heliostat.models import JobId
from heliostat.services.public_urls import PublicUrls
from heliostat.store.database import Store, StoreChanges
from heliostat.store.samples import SampleStore
from heliostat.store.uploads import UploadStore

_MOST_CONCURRENT = 4
T = TypeVar("T")
_TRUSTED_SECONDS = 2.0
_MOST_KEPT = 500


class ReadCache:
    """What was just read, for the many pages that refresh by themselves after the same change.

    Holds what was read since the last change that pages were told of; never what began to be read before it.

    Whoever is told of a change afterwards therefore never sees less than what they were told of.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._generation = 0
        self._kept: dict[Hashable, tuple[float, Any]] = {}

    def get_or_load(self, key: Hashable, load: Callable[[], T]) -> T:
        began = self._clock()
        with self._lock:
            generation = self._generation
            kept = self._kept.get(key)
        if kept is not None and began - kept[0] < _TRUSTED_SECONDS:
            found: T = kept[1]
            return found
        value = load()
        with self._lock:
            if generation == self._generation:
                if len(self._kept) >= _MOST_KEPT:
                    self._kept.clear()
                self._kept[key] = (began, value)
        return value

    def invalidate(self) -> None:
        """Something changed, and those who show it are about to be told."""
        with self._lock:
            self._generation += 1
            self._kept.clear()


class ReplicaTraffic:
    """How many requests the proxy has open with each replica. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: Counter[JobId] = Counter()
        self.services_version = 0  # another one after every change of services

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
        """A request is open there meanwhile."""
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
    """For requests that take seconds of a thread and a processor: one at a time for each user, and never too many.

    Thread-safe. Whoever comes too early is told so at once: to wait would take a thread as well.
    """

    def __init__(self, what: str, most: int = _MOST_CONCURRENT) -> None:
        self._what, self._most = what, most
        self._lock = threading.Lock()
        self._having: set[str] = set()

    @contextlib.contextmanager
    def acquire(self, user: str) -> Iterator[None]:
        """Raises TooManyRequests."""
        with self._lock:
            if user in self._having:
                raise TooManyRequests(f"A {self._what} of yours is under way.", "Wait for its answer.")
            if len(self._having) >= self._most:
                raise TooManyRequests("Too many concurrent requests.", "Ask again in a few seconds.")
            self._having.add(user)
        try:
            yield
        finally:
            with self._lock:
                self._having.discard(user)


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Context:
    settings: Settings
    store: Store
    engine: Engine
    node_inventory: NodeInventory
    controller: Controller
    identities: Identities
    scheduling_rules: SchedulingRules
    forecaster: Forecaster
    samples: SampleStore
    uploads: UploadStore
    read_cache: ReadCache = field(default_factory=ReadCache)
    import_limit: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit("file"))
    search_limit: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit("search"))
    upload_limit: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit("upload", most=1000))
    notebook_limit: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit("notebook"))
    now: Callable[[], datetime] = field(default=utc_now)
    traffic: ReplicaTraffic = field(default_factory=ReplicaTraffic)
    public_urls: PublicUrls = field(default_factory=PublicUrls)


def require_program_engine(context: Context) -> RunsPrograms:
    """What only an engine that really runs programs can do: files, ports, further commands. Raises Conflict."""
    if not isinstance(context.engine, RunsPrograms):
        raise Conflict(
            f"Jobs of the engine {context.engine.name} only pretend to run: they have no output, files or ports.",
            "Use the local engine or Slurm for real ones.",
        )
    return context.engine


def attach_endpoints(context: Context) -> None:
    """Connections to jobs live on the event loop that runs now."""
    if isinstance(context.engine, RunsPrograms):
        context.engine.attach_endpoints()


async def detach_endpoints(context: Context) -> None:
    """Before that loop ends."""
    if isinstance(context.engine, RunsPrograms):
        await context.engine.detach_endpoints()
