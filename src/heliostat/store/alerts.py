"""Alerts that were reported and have not ended, in the database."""

from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.dialects.sqlite import insert

from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.timestamps import to_timestamp

_alerts = schema.firing_alerts


def add_firing_alert(tx: Transaction, fingerprint: str, now: datetime) -> bool:
    """Whether it is new. Of an alert that is known, the time is updated."""
    known = tx.conn.execute(select(_alerts.c.seen_at).where(_alerts.c.fingerprint == fingerprint)).first()
    row = {"fingerprint": fingerprint, "seen_at": to_timestamp(now)}
    tx.conn.execute(insert(_alerts).values(row).on_conflict_do_update(index_elements=["fingerprint"], set_=row))
    return known is None


def remove_firing_alert(tx: Transaction, fingerprint: str) -> bool:
    """Whether it was known."""
    return tx.conn.execute(delete(_alerts).where(_alerts.c.fingerprint == fingerprint)).rowcount > 0


def forget_firing_alerts(tx: Transaction, before: datetime, keep: int) -> None:
    """Alerts that were last reported before this time, and the oldest beyond this number."""
    newest = select(_alerts.c.fingerprint).order_by(_alerts.c.seen_at.desc()).limit(keep)
    is_surplus = _alerts.c.fingerprint.not_in(newest)
    tx.conn.execute(delete(_alerts).where((_alerts.c.seen_at < to_timestamp(before)) | is_surplus))
