"""Sessions in the database."""

from sqlalchemy import Connection, insert, select

from heliostat.models.sessions import Session
from heliostat.store import schema
from heliostat.store.database import Transaction

_sessions, _jobs = schema.sessions, schema.jobs


def add_session(tx: Transaction, session: Session) -> None:
    tx.conn.execute(
        insert(_sessions).values(job_id=session.job_id, app=session.app, secret=session.secret, ready_attempt=0)
    )


def find_session(conn: Connection, job_id: int) -> Session | None:
    row = conn.execute(select(_sessions).where(_sessions.c.job_id == job_id)).first()
    return None if row is None else Session(row.job_id, row.app, row.secret)


def sessions_of(conn: Connection, user: str, limit: int) -> list[Session]:
    """Newest first."""
    mine = select(_sessions).join(_jobs, _jobs.c.id == _sessions.c.job_id).where(_jobs.c.user == user)
    rows = conn.execute(mine.order_by(_sessions.c.job_id.desc()).limit(limit))
    return [Session(row.job_id, row.app, row.secret) for row in rows]
