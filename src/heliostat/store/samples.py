"""Usage samples of jobs, nodes and the cluster, in their own SQLite file.

There are many samples and losing some is acceptable, so they are separate from the main database: they are
collected in memory and written once a minute, one row per subject and hour. Old samples are rolled up, very old
ones deleted. A file that cannot be read is replaced; a full disk loses only samples.
"""

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

import numpy as np

from heliostat.server_log import get_logger
from heliostat.store.sample_chunks import SampleChunk, add_unknown_columns, pack, pack_row, roll_up_chunks, unpack

log = get_logger()
T = TypeVar("T")

HOUR, DAY = 3600, 86400
FIVE_MINUTE_STEP, HOURLY_STEP = 300, HOUR  # steps, in seconds
_SPANS = {
    FIVE_MINUTE_STEP: DAY,
    HOURLY_STEP: 30 * DAY,
}  # time span of a row, by step; rows of smaller steps span an hour
_SCANNED_STEPS = (
    ((0, FIVE_MINUTE_STEP - 1), HOUR),
    ((FIVE_MINUTE_STEP, FIVE_MINUTE_STEP), DAY),
    ((HOURLY_STEP, HOURLY_STEP), 30 * DAY),
)
_MAX_ROLLED_UP = 500  # rows at once
_MAX_HOURS_IN_MEMORY = 2  # while the disk is full

_VERSION = 1
_SCHEMA = f"""
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS chunks (
    subject TEXT NOT NULL, step INTEGER NOT NULL, bucket INTEGER NOT NULL, first INTEGER NOT NULL,
    columns INTEGER NOT NULL, mean BLOB NOT NULL, max BLOB, PRIMARY KEY (subject, step, bucket)
);
CREATE INDEX IF NOT EXISTS chunks_by_age ON chunks (step, bucket);
PRAGMA user_version = {_VERSION};
"""
_WRITE = "INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?)"
_READ_ONE = "SELECT * FROM chunks WHERE subject = ? AND step = ? AND bucket = ?"
_READ = "SELECT * FROM chunks WHERE subject = ? AND bucket > ? AND bucket < ?"
_SCAN = "SELECT * FROM chunks WHERE step >= ? AND step <= ? AND bucket > ? AND bucket < ? AND subject GLOB ?"
_OLD = "SELECT * FROM chunks WHERE step >= ? AND step < ? AND bucket <= ? LIMIT ?"


@dataclass(frozen=True, slots=True)
class SampleRetention:
    """Number of days to keep samples, by step."""

    full_resolution_days: float = 1
    five_minute_days: float = 31  # in steps of five minutes
    hourly_days: float = 1095


@dataclass(slots=True)
class _OpenChunk:
    """The current hour of a subject."""

    first: int
    columns: int
    data: bytearray = field(default_factory=bytearray)
    is_dirty: bool = False

    def add(self, at: int, step: int, values: Sequence[float | None]) -> None:
        if len(values) > self.columns:
            self.data = bytearray(pack(add_unknown_columns(unpack(bytes(self.data), self.columns), len(values))))
            self.columns = len(values)
        missing = (at - self.first) // step - len(self.data) // (2 * self.columns)
        if missing < 0:
            return  # a second sample in the same step, or the clock was set back
        unknown = pack_row([None] * self.columns)
        self.data += unknown * missing + (pack_row(values) + unknown)[: len(unknown)]
        self.is_dirty = True


class SampleStore:
    """Thread-safe. Errors of the file are logged, not raised: the samples are lost."""

    def __init__(
        self,
        path: Path,
        step_seconds: int = 10,
        retention: SampleRetention | None = None,
        *,
        max_rolled_up: int = _MAX_ROLLED_UP,
    ) -> None:
        self._max_rolled_up = max_rolled_up
        self.step_seconds = max(1, step_seconds)
        self._path, self._retention = path, retention or SampleRetention()
        self._lock = threading.Lock()
        self._open: dict[tuple[str, int], _OpenChunk] = {}
        self._failing = False
        self._conn: sqlite3.Connection | None = None  # opened at first use

    def add(self, at: float, values: Mapping[str, Sequence[float | None]]) -> None:
        """Add current samples by subject; the columns of a subject keep their order. In memory until `flush`."""
        moment = int(at) // self.step_seconds * self.step_seconds
        bucket = int(at) // HOUR * HOUR
        with self._lock:
            for subject, row in values.items():
                if (chunk := self._open.get((subject, bucket))) is None:
                    chunk = self._open[subject, bucket] = self._begin(subject, bucket, moment, len(row))
                chunk.add(moment, self.step_seconds, row)

    def add_history(self, chunks: Mapping[str, SampleChunk]) -> None:
        """Add past values, in steps of five minutes or an hour."""
        with self._lock:
            self._guarded(lambda conn: _merge_all(conn, chunks))

    def read(self, subject: str, start: float, end: float) -> list[SampleChunk]:
        """All samples of this period, unordered; a chunk may begin before it or end after it."""
        with self._lock:
            in_memory = [
                _open_to_chunk(chunk, self.step_seconds)
                for (name, _), chunk in self._open.items()
                if name == subject and chunk.data
            ]
            first_times = {chunk.first for chunk in in_memory}
            parameters = subject, start - _SPANS[HOURLY_STEP], end
            rows = self._guarded(lambda conn: conn.execute(_READ, parameters).fetchall()) or []
        stored = (
            _row_to_chunk(row)
            for row in rows
            if not (row["step"] == self.step_seconds and row["first"] in first_times)
        )
        return [chunk for chunk in (*stored, *in_memory) if chunk.first < end and chunk.end > start]

    def scan(self, prefix: str, start: float, end: float) -> Iterator[tuple[str, SampleChunk]]:
        """Chunks in this period of all subjects that begin like this, unordered, as they are in the file. Its own
        connection, so that neither samples nor pages wait."""
        if not self._path.exists():
            return
        try:
            conn = sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True)
        except sqlite3.Error as error:
            self._log_failure(error)
            return
        with contextlib.closing(conn):
            conn.row_factory = sqlite3.Row
            for steps, span in _SCANNED_STEPS:
                for row in conn.execute(_SCAN, (*steps, start - span, end, f"{prefix}*")):
                    chunk = _row_to_chunk(row)
                    if chunk.first < end and chunk.end > start:
                        yield row["subject"], chunk

    def flush(self, now: float) -> None:
        """Write new samples to the file."""
        with self._lock:
            self._check_file_exists()
            dirty = {key: chunk for key, chunk in self._open.items() if chunk.is_dirty}
            rows = [
                (subject, self.step_seconds, bucket, chunk.first, chunk.columns, bytes(chunk.data), None)
                for (subject, bucket), chunk in dirty.items()
            ]
            if rows and self._guarded(lambda conn: conn.executemany(_WRITE, rows)) is None:
                oldest = now - _MAX_HOURS_IN_MEMORY * HOUR
                self._open = {key: chunk for key, chunk in self._open.items() if key[1] > oldest}
                return
            self._open = dirty  # subjects without new samples have ended, or are in a later hour
            for chunk in dirty.values():
                chunk.is_dirty = False

    def compact(self, now: float) -> bool:
        """Roll up old samples, delete very old ones. True: there may be more to do."""
        retention, limit = self._retention, self._max_rolled_up
        with self._lock:
            fine = self._guarded(
                lambda conn: _roll_up(
                    conn,
                    (0, FIVE_MINUTE_STEP),
                    FIVE_MINUTE_STEP,
                    now - retention.full_resolution_days * DAY,
                    limit,
                )
            )
            coarse = self._guarded(
                lambda conn: _roll_up(
                    conn,
                    (FIVE_MINUTE_STEP, HOURLY_STEP),
                    HOURLY_STEP,
                    now - retention.five_minute_days * DAY,
                    limit,
                )
            )
            too_old = now - retention.hourly_days * DAY - _SPANS[HOURLY_STEP]
            self._guarded(
                lambda conn: conn.execute(
                    "DELETE FROM chunks WHERE step >= ? AND bucket < ?", (HOURLY_STEP, too_old)
                )
            )
        return limit in {fine, coarse}

    def close(self) -> None:
        with self._lock:
            if self._conn is not None:
                self._conn.close()
                self._conn = None

    def _begin(self, subject: str, bucket: int, moment: int, columns: int) -> _OpenChunk:
        """A new hour, or the stored one if the server was restarted or the subject paused."""
        row = self._guarded(lambda conn: conn.execute(_READ_ONE, (subject, self.step_seconds, bucket)).fetchone())
        if row is None:
            return _OpenChunk(moment, columns)
        return _OpenChunk(row["first"], row["columns"], bytearray(row["mean"]))

    def _guarded(self, action: Callable[[sqlite3.Connection], T]) -> T | None:
        """In one transaction; None if that fails."""
        if self._conn is None:
            self._conn = self._connect()
        if self._conn is None:
            return None
        try:
            with self._conn:
                result = action(self._conn)
            self._failing = False
            return result
        except sqlite3.OperationalError as error:  # full, locked or deleted
            self._log_failure(error)
        except sqlite3.DatabaseError as error:  # a broken file
            self._conn.close()
            self._conn = self._replace_file(error)
        return None

    def _connect(self) -> sqlite3.Connection | None:
        try:
            return _open_file(self._path)
        except sqlite3.OperationalError as error:
            self._log_failure(error)
        except sqlite3.DatabaseError as error:  # not a database, or one of another kind
            return self._replace_file(error)
        return None

    def _replace_file(self, error: Exception) -> sqlite3.Connection | None:
        log.warning("samples_file_replaced", file=str(self._path), error=str(error))
        try:
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            return _open_file(self._path)
        except (OSError, sqlite3.Error) as second_error:
            self._log_failure(second_error)
        return None

    def _check_file_exists(self) -> None:
        """Writes to a deleted file succeed, but are lost when the server ends."""
        if self._conn is not None and not self._path.exists():
            self._conn.close()
            self._conn = self._replace_file(FileNotFoundError("it was deleted"))

    def _log_failure(self, error: Exception) -> None:
        """Once, until a write succeeds again."""
        if not self._failing:
            log.warning("samples_not_written", file=str(self._path), error=str(error))
        self._failing = True


def _open_file(path: Path) -> sqlite3.Connection:
    conn = sqlite3.connect(path, timeout=1.0, check_same_thread=False)
    conn.row_factory = sqlite3.Row
    try:
        (version,) = conn.execute("PRAGMA user_version").fetchone()
        if version not in (0, _VERSION):
            raise sqlite3.DatabaseError(f"its version is {version}, not {_VERSION}")
        conn.executescript(_SCHEMA)
    except sqlite3.Error:
        conn.close()
        raise
    return conn


def _open_to_chunk(chunk: _OpenChunk, step: int) -> SampleChunk:
    values = unpack(bytes(chunk.data), chunk.columns)
    return SampleChunk(chunk.first, step, values, values)


def _row_to_chunk(row: sqlite3.Row) -> SampleChunk:
    mean = unpack(row["mean"], row["columns"])
    largest = mean if row["max"] is None else unpack(row["max"], row["columns"])
    return SampleChunk(row["first"], row["step"], mean, largest)


def _roll_up(conn: sqlite3.Connection, steps: tuple[int, int], to_step: int, before: float, limit: int) -> int:
    """Rows with a step in this range (from, below) that ended before then; return the number of rows."""
    span = _SPANS.get(steps[0], HOUR)
    rows = conn.execute(_OLD, (*steps, before - span, limit)).fetchall()
    for subject, group in groupby(sorted(rows, key=itemgetter("subject")), key=itemgetter("subject")):
        _merge(conn, subject, roll_up_chunks([_row_to_chunk(row) for row in group], to_step))
    keys = [(row["subject"], row["step"], row["bucket"]) for row in rows]
    conn.executemany("DELETE FROM chunks WHERE subject = ? AND step = ? AND bucket = ?", keys)
    return len(rows)


def _merge_all(conn: sqlite3.Connection, chunks: Mapping[str, SampleChunk]) -> None:
    for subject, chunk in chunks.items():
        _merge(conn, subject, chunk)


def _merge(conn: sqlite3.Connection, subject: str, chunk: SampleChunk) -> None:
    """Merge it into the rows of its step."""
    step = chunk.step
    for bucket, part in _by_bucket(chunk, _SPANS[step]):
        row = conn.execute(_READ_ONE, (subject, step, bucket)).fetchone()
        whole = part if row is None else roll_up_chunks([_row_to_chunk(row), part], step)
        values = subject, step, bucket, whole.first, whole.mean.shape[1], pack(whole.mean), pack(whole.max)
        conn.execute(_WRITE, values)


def _by_bucket(chunk: SampleChunk, span: int) -> Iterator[tuple[int, SampleChunk]]:
    """Split at the boundaries of rows, without unknown values at either end."""
    times = chunk.first + np.arange(len(chunk.mean)) * chunk.step
    is_known = ~np.isnan(chunk.mean).all(axis=1)
    for bucket in np.unique(times[is_known] // span * span):
        (inside,) = np.nonzero(is_known & (times >= bucket) & (times < bucket + span))
        part = slice(inside[0], inside[-1] + 1)
        yield int(bucket), SampleChunk(int(times[inside[0]]), chunk.step, chunk.mean[part], chunk.max[part])
