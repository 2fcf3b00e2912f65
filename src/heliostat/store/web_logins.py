"""Logins of browsers in the database, and their grants to use the proxy."""

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from heliostat.models import WebLogin
from heliostat.models.sessions import Grant, Target
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.times import to_seconds, to_time

_logins = schema.web_logins

_grants = schema.proxy_grants


def add_login(tx: Transaction, login: WebLogin, digest: str) -> WebLogin:
    """Keep it; return it with the id it got."""
    row = tx.conn.execute(
        insert(_logins)
        .values(
            user=login.user,
            digest=digest,
            via=login.via,
            created_at=to_seconds(login.created_at),
            expires_at=to_seconds(login.expires_at),
            seen_at=to_seconds(login.seen_at),
            user_agent=login.user_agent,
            address=login.address,
        )
        .returning(_logins)
    ).one()
    return _login(row)


def login_by_digest(conn: Connection, digest: str) -> WebLogin | None:
    row = conn.execute(select(_logins).where(_logins.c.digest == digest)).first()
    return None if row is None else _login(row)


def login_by_id(conn: Connection, login_id: int) -> WebLogin | None:
    row = conn.execute(select(_logins).where(_logins.c.id == login_id)).first()
    return None if row is None else _login(row)


def open_logins(conn: Connection, user: str, now: datetime) -> list[WebLogin]:
    """Newest first."""
    mine = _logins.c.user == user, _logins.c.ended_at.is_(None), _logins.c.expires_at > to_seconds(now)
    return [_login(row) for row in conn.execute(select(_logins).where(*mine).order_by(_logins.c.id.desc()))]


def set_seen(tx: Transaction, login_id: int, at: datetime) -> None:
    tx.conn.execute(update(_logins).where(_logins.c.id == login_id).values(seen_at=to_seconds(at)))


def end_login(tx: Transaction, login_id: int, at: datetime) -> None:
    ended = update(_logins).where(_logins.c.id == login_id, _logins.c.ended_at.is_(None))
    tx.conn.execute(ended.values(ended_at=to_seconds(at)))


def end_logins_of(tx: Transaction, user: str, at: datetime) -> None:
    ended = update(_logins).where(_logins.c.user == user, _logins.c.ended_at.is_(None))
    tx.conn.execute(ended.values(ended_at=to_seconds(at)))


def drop_dead_logins(tx: Transaction, before: datetime) -> None:
    """Forget all that expired before then."""
    tx.conn.execute(delete(_logins).where(_logins.c.expires_at < to_seconds(before)))


def _login(row: Row[Any]) -> WebLogin:
    return WebLogin(
        id=row.id,
        user=row.user,
        via=row.via,
        created_at=to_time(row.created_at),
        expires_at=to_time(row.expires_at),
        seen_at=to_time(row.seen_at),
        user_agent=row.user_agent,
        address=row.address,
        ended_at=to_time(row.ended_at),
    )


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
