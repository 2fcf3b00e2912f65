"""Shares, quotas, data classes, and the Slurm associations created by Heliostat, in the database."""

from collections.abc import Collection
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from heliostat.models import Department, Project, ProjectRole, Quota
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.timestamps import to_datetime

_projects, _departments = schema.projects, schema.departments

_slurm_associations = schema.slurm_associations

_quotas = schema.quotas
NO_QUOTA = Quota()


class QuotaLevel(StrEnum):
    USER = "user"
    PROJECT = "project"
    DEPARTMENT = "department"


def list_quotas(conn: Connection, scope: QuotaLevel) -> dict[str, Quota]:
    """By name; names without a quota are omitted."""
    rows = conn.execute(select(_quotas).where(_quotas.c.scope == scope.value))
    return {row.name: _quota(row) for row in rows}


def find_quota(conn: Connection, scope: QuotaLevel, name: str) -> Quota:
    row = conn.execute(select(_quotas).where(_quotas.c.scope == scope.value, _quotas.c.name == name)).first()
    return NO_QUOTA if row is None else _quota(row)


def set_quota(tx: Transaction, scope: QuotaLevel, name: str, quota: Quota) -> None:
    """A quota without limits is removed."""
    tx.conn.execute(delete(_quotas).where(_quotas.c.scope == scope.value, _quotas.c.name == name))
    if quota != NO_QUOTA:
        limits = {
            "running_gpus": quota.running_gpus,
            "queued_gpus": quota.queued_gpus,
            "gpu_hours_per_month": quota.gpu_hours_per_month,
        }
        tx.conn.execute(insert(_quotas).values(scope=scope.value, name=name, **limits))
    tx.changes.rules_changed = True


def _quota(row: Row[Any]) -> Quota:
    return Quota(row.running_gpus, row.queued_gpus, row.gpu_hours_per_month)


def list_departments(conn: Connection) -> list[Department]:
    quotas = list_quotas(conn, QuotaLevel.DEPARTMENT)
    rows = conn.execute(select(_departments).order_by(_departments.c.name))
    return [Department(row.name, row.share, quotas.get(row.name, NO_QUOTA)) for row in rows]


def find_department(conn: Connection, name: str) -> Department | None:
    return next((department for department in list_departments(conn) if department.name == name), None)


def list_projects_without_members(conn: Connection) -> list[Project]:
    """For share calculations, which do not need the members."""
    quotas = list_quotas(conn, QuotaLevel.PROJECT)
    return [row_to_project(row, (), quotas.get(row.name, NO_QUOTA)) for row in conn.execute(select(_projects))]


def row_to_project(row: Row[Any], members: Collection[tuple[str, ProjectRole]], quota: Quota) -> Project:
    return Project(
        name=row.name,
        department=row.department,
        members=tuple(members),
        share=row.share,
        quota=quota,
        data_class=row.data_class,
        closes_at=to_datetime(row.closes_at),
    )


def project_data_classes(conn: Connection) -> dict[str, int]:
    """By project; projects of class 0 are omitted."""
    query = select(_projects.c.name, _projects.c.data_class).where(_projects.c.data_class > 0)
    return {row.name: row.data_class for row in conn.execute(query)}


def set_department_share(tx: Transaction, name: str, share: int) -> None:
    tx.conn.execute(update(_departments).where(_departments.c.name == name).values(share=share))
    tx.changes.rules_changed = True


def update_project(tx: Transaction, name: str, **columns: Any) -> None:
    tx.conn.execute(update(_projects).where(_projects.c.name == name).values(columns))
    tx.changes.rules_changed = True


def list_slurm_associations(conn: Connection) -> frozenset[tuple[str, str]]:
    """Account and Unix user of associations created by Heliostat. Slurm does not store who created them."""
    return frozenset((row.account, row.user) for row in conn.execute(select(_slurm_associations)))


def add_slurm_association(tx: Transaction, account: str, user: str) -> None:
    """Idempotent."""
    remove_slurm_association(tx, account, user)
    tx.conn.execute(insert(_slurm_associations).values(account=account, user=user))


def remove_slurm_association(tx: Transaction, account: str, user: str) -> None:
    tx.conn.execute(
        delete(_slurm_associations).where(
            _slurm_associations.c.account == account, _slurm_associations.c.user == user
        )
    )
