"""Browser logins and proxy grants in the database."""

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from heliostat.models import WebLogin
from heliostat.models.sessions import ProxyGrant, ProxyTarget
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.timestamps import to_datetime, to_timestamp

_logins = schema.web_logins

_grants = schema.proxy_grants


def add_login(tx: Transaction, login: WebLogin, digest: str) -> WebLogin:
    """Store it; return it with its id."""
    row = tx.conn.execute(
        insert(_logins)
        .values(
            user=login.user,
            digest=digest,
            via=login.via,
            created_at=to_timestamp(login.created_at),
            expires_at=to_timestamp(login.expires_at),
            seen_at=to_timestamp(login.seen_at),
            user_agent=login.user_agent,
            address=login.address,
        )
        .returning(_logins)
    ).one()
    return _login(row)


def find_login_by_digest(conn: Connection, digest: str) -> WebLogin | None:
    row = conn.execute(select(_logins).where(_logins.c.digest == digest)).first()
    return None if row is None else _login(row)


def find_login(conn: Connection, login_id: int) -> WebLogin | None:
    row = conn.execute(select(_logins).where(_logins.c.id == login_id)).first()
    return None if row is None else _login(row)


def list_open_logins(conn: Connection, user: str, now: datetime) -> list[WebLogin]:
    """Newest first."""
    is_open = _logins.c.user == user, _logins.c.ended_at.is_(None), _logins.c.expires_at > to_timestamp(now)
    return [_login(row) for row in conn.execute(select(_logins).where(*is_open).order_by(_logins.c.id.desc()))]


def set_login_last_seen(tx: Transaction, login_id: int, at: datetime) -> None:
    tx.conn.execute(update(_logins).where(_logins.c.id == login_id).values(seen_at=to_timestamp(at)))


def end_login(tx: Transaction, login_id: int, at: datetime) -> None:
    ended = update(_logins).where(_logins.c.id == login_id, _logins.c.ended_at.is_(None))
    tx.conn.execute(ended.values(ended_at=to_timestamp(at)))


def end_logins_of_user(tx: Transaction, user: str, at: datetime) -> None:
    ended = update(_logins).where(_logins.c.user == user, _logins.c.ended_at.is_(None))
    tx.conn.execute(ended.values(ended_at=to_timestamp(at)))


def remove_expired_logins(tx: Transaction, before: datetime) -> None:
    tx.conn.execute(delete(_logins).where(_logins.c.expires_at < to_timestamp(before)))


def _login(row: Row[Any]) -> WebLogin:
    return WebLogin(
        id=row.id,
        user=row.user,
        via=row.via,
        created_at=to_datetime(row.created_at),
        expires_at=to_datetime(row.expires_at),
        seen_at=to_datetime(row.seen_at),
        user_agent=row.user_agent,
        address=row.address,
        ended_at=to_datetime(row.ended_at),
    )


def add_grant(tx: Transaction, grant: ProxyGrant, digest: str) -> None:
    tx.conn.execute(
        insert(_grants).values(
            digest=digest,
            user=grant.user,
            job_id=grant.target.job_id,
            port=grant.target.port,
            service=grant.target.service or None,
            login_id=grant.login_id,
            address=grant.address,
            created_at=to_timestamp(grant.created_at),
            expires_at=to_timestamp(grant.expires_at),
        )
    )


def find_grant_by_digest(conn: Connection, digest: str) -> ProxyGrant | None:
    row = conn.execute(select(_grants).where(_grants.c.digest == digest)).first()
    return None if row is None else _grant(row)


def remove_old_grants(tx: Transaction, user: str, now: datetime, limit: int) -> None:
    """Remove expired grants, and the oldest grants of this user beyond the limit."""
    tx.conn.execute(delete(_grants).where(_grants.c.expires_at <= to_timestamp(now)))
    own = select(_grants.c.digest).where(_grants.c.user == user).order_by(_grants.c.created_at.desc())
    tx.conn.execute(delete(_grants).where(_grants.c.digest.in_(own.offset(limit).limit(-1))))


def _grant(row: Row[Any]) -> ProxyGrant:
    return ProxyGrant(
        user=row.user,
        target=ProxyTarget(row.job_id, row.port, row.service or ""),
        login_id=row.login_id,
        created_at=to_datetime(row.created_at),
        expires_at=to_datetime(row.expires_at),
        address=row.address or "",
    )
