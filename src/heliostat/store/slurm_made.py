"""Whom we have put into which of Slurm's accounts: Slurm keeps no word about that."""

from sqlalchemy import Connection, delete, insert, select

from heliostat.store import schema
from heliostat.store.database import Transaction

_made = schema.slurm_made


def list_made(conn: Connection) -> frozenset[tuple[str, str]]:
    """Account and Unix user."""
    return frozenset((row.account, row.user) for row in conn.execute(select(_made)))


def note_made(tx: Transaction, account: str, user: str) -> None:
    """May be repeated."""
    forget_made(tx, account, user)
    tx.conn.execute(insert(_made).values(account=account, user=user))


def forget_made(tx: Transaction, account: str, user: str) -> None:
    tx.conn.execute(delete(_made).where(_made.c.account == account, _made.c.user == user))
