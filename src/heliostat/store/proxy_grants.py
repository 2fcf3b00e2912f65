"""Who may use the proxy, in the database."""

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from heliostat.models.sessions import Grant, Target
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.times import to_seconds, to_time

_grants = schema.proxy_grants


def add_grant(tx: Transaction, grant: Grant, digest: str) -> None:
    tx.conn.execute(
        insert(_grants).values(
            digest=digest,
            user=grant.user,
            job_id=grant.target.job_id,
            port=grant.target.port,
            service=grant.target.service or None,
            login_id=grant.login_id,
            created_at=to_seconds(grant.created_at),
            expires_at=to_seconds(grant.expires_at),
        )
    )


def grant_by_digest(conn: Connection, digest: str) -> Grant | None:
    row = conn.execute(select(_grants).where(_grants.c.digest == digest)).first()
    return None if row is None else _grant(row)


def drop_old_grants(tx: Transaction, user: str, now: datetime, most: int) -> None:
    """Those that are over, and of this person the oldest beyond so many."""
    tx.conn.execute(delete(_grants).where(_grants.c.expires_at <= to_seconds(now)))
    mine = select(_grants.c.digest).where(_grants.c.user == user).order_by(_grants.c.created_at.desc())
    tx.conn.execute(delete(_grants).where(_grants.c.digest.in_(mine.offset(most).limit(-1))))


def _grant(row: Row[Any]) -> Grant:
    return Grant(
        user=row.user,
        target=Target(row.job_id, row.port, row.service or ""),
        login_id=row.login_id,
        created_at=to_time(row.created_at),
        expires_at=to_time(row.expires_at),
    )
