"""Names and pushes of images built by users, in the database. Their contents are in `environments`."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Connection, Row, Select, delete, insert, select, update

from heliostat.models.images import ImagePush
from heliostat.models.states import JobState
from heliostat.store import schema
from heliostat.store.database import Transaction, query_batches
from heliostat.store.schema import image_names as _names
from heliostat.store.schema import image_pushes as _pushes
from heliostat.store.timestamps import to_datetime, to_timestamp

_jobs = schema.jobs


def set_image_name(tx: Transaction, user: str, name: str, digest: str, at: datetime) -> None:
    """The name refers to this digest from now on."""
    tx.conn.execute(delete(_names).where(_names.c.user == user, _names.c.name == name))
    tx.conn.execute(insert(_names).values(user=user, name=name, digest=digest, named_at=to_timestamp(at)))
    tx.changes.rules_changed = True


def find_image_digests(conn: Connection, user: str, names: Iterable[str]) -> dict[str, str]:
    """By name; unknown names of this user are omitted."""
    digests: dict[str, str] = {}
    for batch in query_batches(list(names)):
        query = select(_names.c.name, _names.c.digest).where(_names.c.user == user, _names.c.name.in_(batch))
        digests |= {row.name: row.digest for row in conn.execute(query)}
    return digests


def list_image_names(conn: Connection, digests: Iterable[str]) -> dict[str, list[str]]:
    """By digest; digests without a name are omitted."""
    query = select(_names.c.digest, _names.c.name).where(_names.c.digest.in_(list(digests)))
    names: dict[str, list[str]] = {}
    for row in conn.execute(query.order_by(_names.c.name)):
        names.setdefault(row.digest, []).append(row.name)
    return names


def remove_image(tx: Transaction, digest: str) -> None:
    """Remove its names and pushes, after it was removed from disk."""
    tx.conn.execute(delete(_names).where(_names.c.digest == digest))
    tx.conn.execute(delete(_pushes).where(_pushes.c.digest == digest))
    tx.changes.rules_changed = True


def add_image_push(tx: Transaction, push: ImagePush) -> None:
    values = {"job_id": push.job_id, "digest": push.digest, "target": push.target}
    tx.conn.execute(insert(_pushes).values(**values, created_at=to_timestamp(push.created_at)))
    tx.changes.rules_changed = True


def list_image_pushes(conn: Connection, digest: str) -> list[ImagePush]:
    """Newest first."""
    query = _all_pushes().where(_pushes.c.digest == digest).order_by(_pushes.c.job_id.desc())
    return [_push(row) for row in conn.execute(query.limit(50))]


def list_pushes_without_digest(conn: Connection) -> list[ImagePush]:
    """Completed pushes whose digest in the registry is not recorded."""
    is_completed = _jobs.c.state == JobState.COMPLETED.value
    query = _all_pushes().where(_pushes.c.pushed_digest.is_(None), is_completed)
    return [_push(row) for row in conn.execute(query.limit(1000))]


def list_unfinished_pushes(conn: Connection) -> list[ImagePush]:
    query = _all_pushes().where(_jobs.c.ended_at.is_(None), _jobs.c.id.is_not(None))
    return [_push(row) for row in conn.execute(query)]


def set_pushed_digest(tx: Transaction, job_id: int, pushed_digest: str) -> None:
    tx.conn.execute(update(_pushes).where(_pushes.c.job_id == job_id).values(pushed_digest=pushed_digest))
    tx.changes.rules_changed = True


def _all_pushes() -> Select[tuple[object, ...]]:
    return select(_pushes, _jobs.c.state, _jobs.c.reason).outerjoin(_jobs, _jobs.c.id == _pushes.c.job_id)


def _push(row: Row[tuple[object, ...]]) -> ImagePush:
    state = JobState(row.state) if row.state else None
    at = to_datetime(row.created_at)
    return ImagePush(row.job_id, row.digest, row.target, at, row.pushed_digest, state, row.reason)
