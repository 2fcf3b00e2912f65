"""Interactive sessions and their guests in the database."""

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from heliostat.models.sessions import Session
from heliostat.models.states import JobState
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.timestamps import to_datetime, to_timestamp

_sessions, _shares, _jobs = schema.sessions, schema.session_shares, schema.jobs


def add_session(tx: Transaction, session: Session) -> None:
    tx.conn.execute(
        insert(_sessions).values(
            job_id=session.job_id,
            app=session.app,
            secret=session.secret,
            ready_attempt=0,
            environment=session.environment,
            keep_idle=session.keep_idle,
        )
    )


def find_session(conn: Connection, job_id: int) -> Session | None:
    row = conn.execute(select(_sessions).where(_sessions.c.job_id == job_id)).first()
    return None if row is None else _session(row)


def list_running_sessions(conn: Connection) -> list[Session]:
    """Of all users."""
    running = _jobs.c.state == JobState.RUNNING.value
    rows = conn.execute(select(_sessions).join(_jobs, _jobs.c.id == _sessions.c.job_id).where(running))
    return [_session(row) for row in rows]


def update_session_if_unchanged(tx: Transaction, before: Session, after: Session) -> bool:
    """Return whether it was unchanged: changes of another process are not overwritten."""
    if find_session(tx.conn, before.job_id) != before:
        return False
    values = {
        name: None if time is None else to_timestamp(time)
        for name, time in (
            ("active_at", after.active_at),
            ("idle_warned_at", after.idle_warned_at),
            ("end_warned_at", after.end_warned_at),
        )
    }
    tx.conn.execute(update(_sessions).where(_sessions.c.job_id == before.job_id).values(**values))
    return True


def list_sessions_of_user(conn: Connection, user: str, limit: int) -> list[Session]:
    """Newest first."""
    query = select(_sessions).join(_jobs, _jobs.c.id == _sessions.c.job_id).where(_jobs.c.user == user)
    rows = conn.execute(query.order_by(_sessions.c.job_id.desc()).limit(limit))
    return [_session(row) for row in rows]


def list_sessions_shared_with(conn: Connection, user: str, limit: int) -> list[Session]:
    """Newest first."""
    shared = select(_shares.c.job_id).where(_shares.c.user == user)
    query = select(_sessions).where(_sessions.c.job_id.in_(shared)).order_by(_sessions.c.job_id.desc())
    return [_session(row) for row in conn.execute(query.limit(limit))]


def list_session_guests(conn: Connection, job_id: int) -> list[str]:
    query = select(_shares.c.user).where(_shares.c.job_id == job_id).order_by(_shares.c.user)
    return list(conn.execute(query).scalars())


def add_session_guest(tx: Transaction, job_id: int, user: str, at: datetime) -> None:
    remove_session_guest(tx, job_id, user)
    tx.conn.execute(insert(_shares).values(job_id=job_id, user=user, created_at=to_timestamp(at)))


def remove_session_guest(tx: Transaction, job_id: int, user: str) -> None:
    tx.conn.execute(delete(_shares).where(_shares.c.job_id == job_id, _shares.c.user == user))


def _session(row: Row[Any]) -> Session:
    return Session(
        row.job_id,
        row.app,
        row.secret,
        row.environment,
        row.keep_idle,
        active_at=to_datetime(row.active_at),
        idle_warned_at=to_datetime(row.idle_warned_at),
        end_warned_at=to_datetime(row.end_warned_at),
    )
