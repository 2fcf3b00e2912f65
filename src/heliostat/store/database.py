"""Database connections and group commit: one writer at a time, many readers.

A caller of `write` adds its change to a queue and becomes the leader, unless another thread is the leader. The
leader runs all queued changes in one transaction, makes it durable with one sync, notifies the listeners in commit
order and then returns the results to the callers. Concurrent requests share the cost of the sync, and no caller
gets a locked database.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, select
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import QueuePool

from heliostat.errors import HeliostatError, StoreUnavailable
from heliostat.metrics import FAST_BUCKETS, Histogram
from heliostat.models import Job, JobEvent, JobId
from heliostat.models.gpu_types import card_fraction
from heliostat.server_log import get_logger
from heliostat.store import schema

log = get_logger()
T = TypeVar("T")
_MAX_CHANGES_PER_COMMIT = 256

_MAX_VARIABLES = 500  # of one statement; SQLite allows at least 999


@dataclass(slots=True)
class StoreChanges:
    """The changes of one commit, for listeners that cache data."""

    added_jobs: list[Job] = field(default_factory=list)
    changed_jobs: list[tuple[JobId, dict[str, Any]]] = field(default_factory=list)  # job, its new values
    events: list[JobEvent] = field(default_factory=list)
    nodes_changed: bool = False
    rules_changed: bool = False  # shares, quotas, data classes, reservations
    schedules_changed: bool = False
    notifications_changed: bool = False
    services_changed: bool = False

    def extend(self, other: "StoreChanges") -> None:
        self.added_jobs += other.added_jobs
        self.changed_jobs += other.changed_jobs
        self.events += other.events
        self.nodes_changed = self.nodes_changed or other.nodes_changed
        self.rules_changed = self.rules_changed or other.rules_changed
        self.schedules_changed = self.schedules_changed or other.schedules_changed
        self.notifications_changed = self.notifications_changed or other.notifications_changed
        self.services_changed = self.services_changed or other.services_changed


@dataclass(slots=True)
class Transaction:
    """The connection of a change, and the changes to report to the listeners."""

    conn: Connection
    ids: "IdAllocator"
    changes: StoreChanges = field(default_factory=StoreChanges)


class IdAllocator:
    """Job, array and event numbers. Only the leader allocates them; numbers of a failed change are reused."""

    def __init__(self, conn: Connection) -> None:
        self._last = {
            "jobs": _highest(conn, schema.jobs.c.id),
            "arrays": _highest(conn, schema.jobs.c.array_id),
            "events": _highest(conn, schema.events.c.id),
        }

    def reserve(self, kind: str, highest: int) -> None:
        """Do not allocate numbers up to this one, although they are not in the database."""
        self._last[kind] = max(self._last[kind], highest)

    def savepoint(self) -> dict[str, int]:
        return dict(self._last)

    def roll_back(self, mark: dict[str, int]) -> None:
        """To the numbers of the savepoint: later ones were neither stored nor reported."""
        self._last = mark

    def allocate(self, kind: str, count: int = 1) -> range:
        first = self._last[kind] + 1
        self._last[kind] += count
        return range(first, first + count)


@dataclass(slots=True)
class _QueuedChange:
    change: Callable[[Transaction], Any]
    future: "Future[Any]"


class Store:
    """The database of one installation."""

    def __init__(self, path: Path) -> None:
        self._writer = _sqlite(path, "IMMEDIATE", size=1)
        self._reader = _sqlite(path, "DEFERRED", size=16)
        self._queue: deque[_QueuedChange] = deque()
        self._submitted = threading.Semaphore(0)
        self._leader_lock = threading.Lock()
        self._closing = False
        self.commit_seconds = Histogram(FAST_BUCKETS)  # of successful commits, until they are on disk
        self._listeners: list[Callable[[StoreChanges], None]] = []
        self._conn = self._writer.connect()
        with self._conn.begin():
            self._ids = IdAllocator(self._conn)
        self._thread = threading.Thread(target=self._run_submitted_changes, name="store-writer", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that sees one consistent state."""
        with self._reader.connect() as conn:
            yield conn

    def write(self, change: Callable[[Transaction], T]) -> T:
        """Run the change in a transaction and return its result once it is on disk.

        The change may run in another caller's thread and must not block. Its exceptions are raised here, and it is
        rolled back.
        """
        queued = _QueuedChange(change, Future())
        self._queue.append(queued)
        with self._leader_lock:
            while not queued.future.done():
                self._commit(self._take())
        result: T = queued.future.result()
        return result

    def submit_write(self, change: Callable[[Transaction], T]) -> "Future[T]":
        """Like `write`, without waiting for the result."""
        queued = _QueuedChange(change, Future())
        self._queue.append(queued)
        self._submitted.release()
        return queued.future

    def check_writable(self, timeout_seconds: float) -> None:
        """Write to the disk without changing anything. Raises StoreUnavailable."""
        try:
            self.submit_write(_rewrite_header).result(timeout_seconds)
        except TimeoutError:
            raise StoreUnavailable(
                f"The database was not written within {timeout_seconds:.0f} s.", "Check its disk."
            ) from None

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def reserve_job_ids(self, highest: int) -> None:
        self._ids.reserve("jobs", highest)

    def on_commit(self, listener: Callable[[StoreChanges], None]) -> None:
        """Called in commit order, in the leader's thread, before `write` returns."""
        self._listeners.append(listener)

    def close(self) -> None:
        self._closing = True
        self._submitted.release()
        self._thread.join()
        with self._leader_lock:
            while queued_changes := self._take():
                self._commit(queued_changes)
            self._conn.close()
            self._writer.dispose()
            self._reader.dispose()

    def _run_submitted_changes(self) -> None:
        while not self._closing:
            self._submitted.acquire()
            with self._leader_lock:
                if queued_changes := self._take():
                    self._commit(queued_changes)

    def _take(self) -> list[_QueuedChange]:
        queued_changes: list[_QueuedChange] = []
        with contextlib.suppress(IndexError):
            while len(queued_changes) < _MAX_CHANGES_PER_COMMIT:
                queued = self._queue.popleft()
                if queued.future.set_running_or_notify_cancel():  # it cannot be cancelled from here on
                    queued_changes.append(queued)
        return queued_changes

    def _commit(self, queued_changes: list[_QueuedChange]) -> None:
        conn = self._conn
        changes = StoreChanges()
        results: list[tuple[_QueuedChange, Any]] = []
        began = time.perf_counter()
        try:
            with conn.begin():
                if len(queued_changes) == 1:
                    results.append((queued_changes[0], self._run_alone(conn, queued_changes[0], changes)))
                for queued in queued_changes if len(queued_changes) > 1 else ():
                    if (result := self._run(conn, queued, changes)) is not _FAILED:
                        results.append((queued, result))  # noqa: PERF401 - the walrus reads better in a loop
        except Exception as error:  # noqa: BLE001 - passed to the callers
            for queued in queued_changes:
                if not queued.future.done():
                    queued.future.set_exception(_explain(error))
            return
        self.commit_seconds.observe(time.perf_counter() - began)
        self._notify(changes)
        for queued, result in results:
            queued.future.set_result(result)

    def _run_alone(self, conn: Connection, queued: _QueuedChange, changes: StoreChanges) -> Any:
        """A single change needs no savepoint: the transaction is rolled back."""
        transaction, mark = Transaction(conn, self._ids), self._ids.savepoint()
        try:
            result = queued.change(transaction)
        except BaseException:
            self._ids.roll_back(mark)
            raise
        changes.extend(transaction.changes)
        return result

    def _run(self, conn: Connection, queued: _QueuedChange, changes: StoreChanges) -> Any:
        """One of several changes, in its own savepoint, so that its failure does not affect the others."""
        transaction, mark = Transaction(conn, self._ids), self._ids.savepoint()
        try:
            with conn.begin_nested():
                result = queued.change(transaction)
        except (OperationalError, DatabaseError) as error:
            if not conn.in_transaction() or isinstance(error, OperationalError):
                raise
            self._ids.roll_back(mark)
            queued.future.set_exception(error)
            return _FAILED
        except Exception as error:  # noqa: BLE001 - passed to the caller
            self._ids.roll_back(mark)
            queued.future.set_exception(error)
            return _FAILED
        changes.extend(transaction.changes)
        return result

    def _notify(self, changes: StoreChanges) -> None:
        for listener in self._listeners:
            try:
                listener(changes)
            except Exception:
                log.exception("listener_failed")


_FAILED = object()


def _rewrite_header(tx: Transaction) -> None:
    """Sets a number that is not used to its own value, which SQLite writes like any change."""
    version = tx.conn.exec_driver_sql("PRAGMA user_version").scalar()
    tx.conn.exec_driver_sql(f"PRAGMA user_version = {version}")


def _highest(conn: Connection, column: Any) -> int:
    return conn.execute(select(func.max(column))).scalar() or 0


def _explain(error: Exception) -> Exception:
    if isinstance(error, HeliostatError) or not isinstance(error, DatabaseError):
        return error
    cause = str(error.orig)
    hint = "Run `helio doctor` to find the cause."
    if "full" in cause or "disk I/O" in cause:
        hint = "Free space on the disk of the data directory; `helio doctor` shows how full it is."
    unavailable = StoreUnavailable(f"The database cannot be written: {cause}.", hint)
    unavailable.__cause__ = error
    return unavailable


def sqlite_url(path: Path) -> URL:
    """Escapes special characters of the path."""
    return URL.create("sqlite", database=str(path))


def _sqlite(path: Path, begin: str, size: int) -> Engine:
    engine = create_engine(sqlite_url(path), poolclass=QueuePool, pool_size=size, max_overflow=size * 2)

    @event.listens_for(engine, "connect")
    def _configure(dbapi: Any, _record: object) -> None:
        dbapi.create_function("card_fraction", 1, card_fraction, deterministic=True)
        dbapi.isolation_level = None  # BEGIN is sent explicitly: the driver's default breaks savepoints
        # A checkpoint needs two more syncs; with 32 MiB of log between two checkpoints they are rare.
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            "busy_timeout=10000",
            "wal_autocheckpoint=8000",
        ):
            dbapi.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(conn: Connection) -> None:
        conn.exec_driver_sql(f"BEGIN {begin}")

    return engine


def query_batches(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Batches of these values, each short enough for `column.in_(batch)`."""
    for start in range(0, len(values), _MAX_VARIABLES):
        yield values[start : start + _MAX_VARIABLES]
