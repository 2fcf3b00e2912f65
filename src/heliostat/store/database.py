"""One writer at a time, many readers.

Whoever wants to change something puts the change into a queue and then takes the lead, unless another leads
already. The leader runs every change that waits in one transaction, makes it durable with one sync, tells the
listeners in commit order and only then answers the callers. Concurrent requests therefore share the cost of the
disk, and nobody ever meets a locked database.
"""

import contextlib
import threading
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
from heliostat.models import Job, JobEvent, JobId
from heliostat.server_log import get_logger
from heliostat.store import schema

log = get_logger()
T = TypeVar("T")
_MOST_TOGETHER = 256

_VARIABLES = 500  # of one statement; SQLite takes 999 at least


@dataclass(slots=True)
class StoreChanges:
    """What one commit changed, for those who keep a picture of it."""

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
    """The connection of a change, and the notes it leaves for the listeners."""

    conn: Connection
    ids: "IdAllocator"
    changes: StoreChanges = field(default_factory=StoreChanges)


class IdAllocator:
    """Job, array and event numbers. Only the leader draws them; those of a change that fails are drawn again."""

    def __init__(self, conn: Connection) -> None:
        self._last = {
            "jobs": _highest(conn, schema.jobs.c.id),
            "arrays": _highest(conn, schema.jobs.c.array_id),
            "events": _highest(conn, schema.events.c.id),
        }

    def reserve(self, kind: str, highest: int) -> None:
        """Draw none of these, though the database knows nothing of them."""
        self._last[kind] = max(self._last[kind], highest)

    def savepoint(self) -> dict[str, int]:
        return dict(self._last)

    def roll_back(self, mark: dict[str, int]) -> None:
        """To what was drawn by then: nothing of what came after is kept, and nobody was told of it."""
        self._last = mark

    def allocate(self, kind: str, count: int = 1) -> range:
        first = self._last[kind] + 1
        self._last[kind] += count
        return range(first, first + count)


@dataclass(slots=True)
class _Order:
    change: Callable[[Transaction], Any]
    future: "Future[Any]"


class Store:
    """The database of one installation."""

    def __init__(self, path: Path) -> None:
        self._writer = _sqlite(path, "IMMEDIATE", size=1)
        self._reader = _sqlite(path, "DEFERRED", size=16)
        self._orders: deque[_Order] = deque()
        self._ordered = threading.Semaphore(0)
        self._lead = threading.Lock()
        self._closing = False
        self._listeners: list[Callable[[StoreChanges], None]] = []
        self._conn = self._writer.connect()
        with self._conn.begin():
            self._ids = IdAllocator(self._conn)
        self._thread = threading.Thread(
            target=self._lead_for_those_who_do_not_wait, name="store-writer", daemon=True
        )
        self._thread.start()

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that sees one consistent state."""
        with self._reader.connect() as conn:
            yield conn

    def write(self, change: Callable[[Transaction], T]) -> T:
        """Run the change in a transaction and return its result once that is safely on disk.

        The change may run in another caller's thread and must not wait for anything. What it raises is raised
        here, and nothing of it is kept.
        """
        order = _Order(change, Future())
        self._orders.append(order)
        with self._lead:
            while not order.future.done():
                self._carry_out(self._take())
        result: T = order.future.result()
        return result

    def submit_write(self, change: Callable[[Transaction], T]) -> "Future[T]":
        """The same for callers that have something better to do than to wait."""
        order = _Order(change, Future())
        self._orders.append(order)
        self._ordered.release()
        return order.future

    def reserve_job_ids(self, highest: int) -> None:
        self._ids.reserve("jobs", highest)

    def on_commit(self, listener: Callable[[StoreChanges], None]) -> None:
        """Called in commit order, in the leader's thread, before the caller of `write` is answered."""
        self._listeners.append(listener)

    def close(self) -> None:
        self._closing = True
        self._ordered.release()
        self._thread.join()
        with self._lead:
            while orders := self._take():
                self._carry_out(orders)
            self._conn.close()
            self._writer.dispose()
            self._reader.dispose()

    def _lead_for_those_who_do_not_wait(self) -> None:
        while not self._closing:
            self._ordered.acquire()
            with self._lead:
                if orders := self._take():
                    self._carry_out(orders)

    def _take(self) -> list[_Order]:
        orders: list[_Order] = []
        with contextlib.suppress(IndexError):
            while len(orders) < _MOST_TOGETHER:
                order = self._orders.popleft()
                if order.future.set_running_or_notify_cancel():  # from here on it is too late to give up
                    orders.append(order)
        return orders

    def _carry_out(self, orders: list[_Order]) -> None:
        conn = self._conn
        changes = StoreChanges()
        answers: list[tuple[_Order, Any]] = []
        try:
            with conn.begin():
                if len(orders) == 1:
                    answers.append((orders[0], self._run_alone(conn, orders[0], changes)))
                for order in orders if len(orders) > 1 else ():
                    if (answer := self._run(conn, order, changes)) is not _REFUSED:
                        answers.append((order, answer))  # noqa: PERF401 - the walrus reads better in a loop
        except Exception as error:  # noqa: BLE001 - whatever it is, the callers must learn of it
            for order in orders:
                if not order.future.done():
                    order.future.set_exception(_explained(error))
            return
        self._tell(changes)
        for order, answer in answers:
            order.future.set_result(answer)

    def _run_alone(self, conn: Connection, order: _Order, changes: StoreChanges) -> Any:
        """The transaction itself is its savepoint."""
        transaction, mark = Transaction(conn, self._ids), self._ids.savepoint()
        try:
            answer = order.change(transaction)
        except BaseException:
            self._ids.roll_back(mark)
            raise
        changes.extend(transaction.changes)
        return answer

    def _run(self, conn: Connection, order: _Order, changes: StoreChanges) -> Any:
        """One change in a savepoint of its own, so that its failure leaves the others alone."""
        transaction, mark = Transaction(conn, self._ids), self._ids.savepoint()
        try:
            with conn.begin_nested():
                answer = order.change(transaction)
        except (OperationalError, DatabaseError) as error:
            if not conn.in_transaction() or isinstance(error, OperationalError):
                raise
            self._ids.roll_back(mark)
            order.future.set_exception(error)
            return _REFUSED
        except Exception as error:  # noqa: BLE001 - belongs to the caller
            self._ids.roll_back(mark)
            order.future.set_exception(error)
            return _REFUSED
        changes.extend(transaction.changes)
        return answer

    def _tell(self, changes: StoreChanges) -> None:
        for listener in self._listeners:
            try:
                listener(changes)
            except Exception:
                log.exception("listener_failed")


_REFUSED = object()


def _highest(conn: Connection, column: Any) -> int:
    return conn.execute(select(func.max(column))).scalar() or 0


def _explained(error: Exception) -> Exception:
    if isinstance(error, HeliostatError) or not isinstance(error, DatabaseError):
        return error
    cause = str(error.orig)
    hint = "See `helio doctor`."
    if "full" in cause or "disk I/O" in cause:
        hint = "Free space on the disk that holds the data directory; `helio doctor` says how full it is."
    unavailable = StoreUnavailable(f"The database cannot be written: {cause}.", hint)
    unavailable.__cause__ = error
    return unavailable


def sqlite_url(path: Path) -> URL:
    """Signs in the path that would mean something in an address mean nothing here."""
    return URL.create("sqlite", database=str(path))


def _sqlite(path: Path, begin: str, size: int) -> Engine:
    engine = create_engine(sqlite_url(path), poolclass=QueuePool, pool_size=size, max_overflow=size * 2)

    @event.listens_for(engine, "connect")
    def _configure(dbapi: Any, _record: object) -> None:
        dbapi.isolation_level = None  # we say BEGIN ourselves: the driver's own habits break savepoints
        # A checkpoint syncs twice more; with 32 MiB of log between two of them that is seldom.
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
    """Parts of these values, each short enough for `column.in_(part)`."""
    for start in range(0, len(values), _VARIABLES):
        yield values[start : start + _VARIABLES]
