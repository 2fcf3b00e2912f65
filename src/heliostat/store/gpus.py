"""Cards: their errors and use over their life, and those that are taken out."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Row, delete, func, select, update
from sqlalchemy.dialects.sqlite import insert

from heliostat.models.gpu_errors import GPU_ERROR_KINDS, Blame, GpuError, find_error_kind
from heliostat.models.jobs import JobId
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.timestamps import to_datetime, to_timestamp

_MAX_ERRORS_OF_PROGRAMS = 200  # of a card
_gpus, _errors = schema.gpus, schema.gpu_errors
_OF_PROGRAMS = [name for name, kind in GPU_ERROR_KINDS.items() if kind.blame is Blame.JOB]


@dataclass(frozen=True, slots=True)
class GpuRecord:
    uuid: str
    node: str
    number: str  # as nvidia-smi showed it
    first_seen_at: datetime
    used_seconds: float  # by jobs
    peak_temperature: int | None  # Celsius, while Heliostat watched
    failed_at: datetime | None  # taken out since then
    failed_kind: str | None
    returned_at: datetime | None  # after its last failure


@dataclass(frozen=True, slots=True)
class GpuErrorRecord:
    kind: str
    at: datetime
    job_id: JobId | None  # whose program caused it


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Since the previous one."""

    uuid: str  # of the card
    node: str
    number: str
    used_seconds: float
    temperature: int | None


def list_failed_gpus(conn: Connection) -> dict[str, GpuRecord]:
    """The cards that are taken out, by uuid."""
    return {row.uuid: _record(row) for row in conn.execute(select(_gpus).where(_gpus.c.failed_at.is_not(None)))}


def list_gpus(conn: Connection, node: str) -> list[GpuRecord]:
    """The cards that this node had last."""
    query = select(_gpus).where(_gpus.c.node == node).order_by(_gpus.c.number, _gpus.c.first_seen_at)
    return [_record(row) for row in conn.execute(query)]


def find_gpu(conn: Connection, uuid: str) -> GpuRecord | None:
    row = conn.execute(select(_gpus).where(_gpus.c.uuid == uuid)).first()
    return None if row is None else _record(row)


def list_gpu_errors(conn: Connection, uuid: str, limit: int) -> list[GpuErrorRecord]:
    """The newest first."""
    query = select(_errors).where(_errors.c.uuid == uuid).order_by(_errors.c.at.desc(), _errors.c.id.desc())
    return [GpuErrorRecord(row.kind, to_datetime(row.at), row.job_id) for row in conn.execute(query.limit(limit))]


def add_gpu_error(tx: Transaction, node: str, error: GpuError) -> bool:
    """Record it once, and take out the card if needed. True: the card is taken out by this error."""
    _touch(tx, GpuUse(error.card, node, error.number, 0.0, None), error.at)
    record = find_gpu(tx.conn, error.card)
    if record is None or _is_known(tx.conn, record, error):
        return False
    values = {"uuid": error.card, "kind": error.kind, "at": to_timestamp(error.at)}
    tx.conn.execute(insert(_errors).values(**values, job_id=error.job_id, message=error.message))
    if find_error_kind(error.kind).blame is Blame.JOB:
        _remove_old_errors_of_programs(tx, error.card)
    if record.failed_at is not None or not find_error_kind(error.kind).takes_out:
        return False
    failed = {"failed_at": to_timestamp(error.at), "failed_kind": error.kind}
    tx.conn.execute(update(_gpus).where(_gpus.c.uuid == error.card).values(**failed))
    tx.changes.nodes_changed = True
    return True


def return_gpu(tx: Transaction, uuid: str, now: datetime) -> None:
    """Jobs may use the card again."""
    values = {"failed_at": None, "failed_kind": None, "returned_at": to_timestamp(now)}
    tx.conn.execute(update(_gpus).where(_gpus.c.uuid == uuid).values(values))
    tx.changes.nodes_changed = True


def add_gpu_use(tx: Transaction, used: Iterable[GpuUse], now: datetime) -> None:
    for each in used:
        _touch(tx, each, now)


def _touch(tx: Transaction, use: GpuUse, now: datetime) -> None:
    new = insert(_gpus).values(
        uuid=use.uuid,
        node=use.node,
        number=use.number,
        first_seen_at=to_timestamp(now),
        used_seconds=use.used_seconds,
        peak_temperature=use.temperature,
    )
    peak = func.max(
        func.coalesce(_gpus.c.peak_temperature, new.excluded.peak_temperature),
        func.coalesce(new.excluded.peak_temperature, _gpus.c.peak_temperature),
    )
    changes = {
        "node": new.excluded.node,
        "number": new.excluded.number,
        "used_seconds": _gpus.c.used_seconds + new.excluded.used_seconds,
        "peak_temperature": peak,
    }
    tx.conn.execute(new.on_conflict_do_update(index_elements=["uuid"], set_=changes))


def _is_known(conn: Connection, record: GpuRecord, error: GpuError) -> bool:
    """A line of the kernel log is recorded once, and never after the card has returned: the next server reads all
    lines again, also those that were too many to record. An error that lasts is recorded once while the card is
    taken out."""
    if error.message is not None and record.returned_at is not None and error.at <= record.returned_at:
        return True
    same = select(_errors.c.id).where(_errors.c.uuid == error.card, _errors.c.kind == error.kind)
    if error.message is not None:
        same = select(_errors.c.id).where(_errors.c.message == error.message)
    elif record.failed_at is None:
        return False
    else:
        same = same.where(_errors.c.at >= to_timestamp(record.failed_at))
    return conn.execute(same.limit(1)).first() is not None


def _remove_old_errors_of_programs(tx: Transaction, uuid: str) -> None:
    """Users can cause as many of these as they like, and must not push out those of the card."""
    of_programs = (_errors.c.uuid == uuid) & _errors.c.kind.in_(_OF_PROGRAMS)
    newest = select(_errors.c.id).where(of_programs).order_by(_errors.c.id.desc()).limit(_MAX_ERRORS_OF_PROGRAMS)
    tx.conn.execute(delete(_errors).where(of_programs, _errors.c.id.not_in(newest)))


def _record(row: Row[tuple[object, ...]]) -> GpuRecord:
    return GpuRecord(
        row.uuid,
        row.node,
        row.number,
        to_datetime(row.first_seen_at),
        row.used_seconds,
        row.peak_temperature,
        to_datetime(row.failed_at),
        row.failed_kind,
        to_datetime(row.returned_at),
    )
