"""Quotas of users, projects and departments in the database."""

from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from heliostat.models import Quota
from heliostat.store import schema
from heliostat.store.database import Transaction

_quotas = schema.quotas
NO_QUOTA = Quota()


class Scope(StrEnum):
    USER = "user"
    PROJECT = "project"
    DEPARTMENT = "department"


def list_quotas(conn: Connection, scope: Scope) -> dict[str, Quota]:
    """Of those who have one, by name."""
    rows = conn.execute(select(_quotas).where(_quotas.c.scope == scope.value))
    return {row.name: _quota(row) for row in rows}


def find_quota(conn: Connection, scope: Scope, name: str) -> Quota:
    row = conn.execute(select(_quotas).where(_quotas.c.scope == scope.value, _quotas.c.name == name)).first()
    return NO_QUOTA if row is None else _quota(row)


def set_quota(tx: Transaction, scope: Scope, name: str, quota: Quota) -> None:
    """One without any limit is forgotten."""
    tx.conn.execute(delete(_quotas).where(_quotas.c.scope == scope.value, _quotas.c.name == name))
    if quota != NO_QUOTA:
        limits = {
            "running_gpus": quota.running_gpus,
            "queued_gpus": quota.queued_gpus,
            "gpu_hours_per_month": quota.gpu_hours_per_month,
        }
        tx.conn.execute(insert(_quotas).values(scope=scope.value, name=name, **limits))
    tx.changes.rules = True


def _quota(row: Row[Any]) -> Quota:
    return Quota(row.running_gpus, row.queued_gpus, row.gpu_hours_per_month)
