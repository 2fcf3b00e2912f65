"""Announcements of the admins in the database."""

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, or_, select

from heliostat.models import Announcement
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.timestamps import to_datetime, to_timestamp

_announcements = schema.announcements


def list_announcements(conn: Connection, now: datetime | None = None, limit: int = 200) -> list[Announcement]:
    """Newest first; with a time, only what is not over by then."""
    wanted = select(_announcements).order_by(_announcements.c.id.desc()).limit(limit)
    if now is not None:
        wanted = wanted.where(
            or_(_announcements.c.ends_at.is_(None), _announcements.c.ends_at > to_timestamp(now))
        )
    return [_one(row) for row in conn.execute(wanted)]


def find_announcement(conn: Connection, announcement_id: int) -> Announcement | None:
    row = conn.execute(select(_announcements).where(_announcements.c.id == announcement_id)).first()
    return None if row is None else _one(row)


def add_announcement(tx: Transaction, announcement: Announcement) -> Announcement:
    """Keep it; return it with the id it got."""
    values = {
        "text": announcement.text,
        "author": announcement.author,
        "created_at": to_timestamp(announcement.created_at),
        "ends_at": to_timestamp(announcement.ends_at),
    }
    row = tx.conn.execute(insert(_announcements).values(**values).returning(_announcements)).one()
    tx.changes.rules_changed = True  # open pages follow them by that topic
    return _one(row)


def remove_announcement(tx: Transaction, announcement_id: int) -> None:
    tx.conn.execute(delete(_announcements).where(_announcements.c.id == announcement_id))
    tx.changes.rules_changed = True


def _one(row: Row[Any]) -> Announcement:
    return Announcement(row.id, row.text, row.author, to_datetime(row.created_at), to_datetime(row.ends_at))
