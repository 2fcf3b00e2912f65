"""Announcements in the database."""

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, or_, select

from heliostat.models import Announcement
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.timestamps import to_datetime, to_timestamp

_announcements = schema.announcements


def list_announcements(conn: Connection, now: datetime | None = None, limit: int = 200) -> list[Announcement]:
    """Newest first; with a time, only those that have not ended by then."""
    query = select(_announcements).order_by(_announcements.c.id.desc()).limit(limit)
    if now is not None:
        query = query.where(or_(_announcements.c.ends_at.is_(None), _announcements.c.ends_at > to_timestamp(now)))
    return [_announcement(row) for row in conn.execute(query)]


def find_announcement(conn: Connection, announcement_id: int) -> Announcement | None:
    row = conn.execute(select(_announcements).where(_announcements.c.id == announcement_id)).first()
    return None if row is None else _announcement(row)


def add_announcement(tx: Transaction, announcement: Announcement) -> Announcement:
    """Store it; return it with its id."""
    values = {
        "text": announcement.text,
        "author": announcement.author,
        "created_at": to_timestamp(announcement.created_at),
        "ends_at": to_timestamp(announcement.ends_at),
    }
    row = tx.conn.execute(insert(_announcements).values(**values).returning(_announcements)).one()
    tx.changes.rules_changed = True  # the topic that updates open pages
    return _announcement(row)


def remove_announcement(tx: Transaction, announcement_id: int) -> None:
    tx.conn.execute(delete(_announcements).where(_announcements.c.id == announcement_id))
    tx.changes.rules_changed = True


def _announcement(row: Row[Any]) -> Announcement:
    return Announcement(row.id, row.text, row.author, to_datetime(row.created_at), to_datetime(row.ends_at))
