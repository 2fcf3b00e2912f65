"""Shares and data classes: departments and projects as the scheduler weighs them."""

from sqlalchemy import Connection, select, update

from heliostat.models import Department, Project
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.quotas import NO_QUOTA, Scope, list_quotas

_projects, _departments = schema.projects, schema.departments


def list_departments(conn: Connection) -> list[Department]:
    quotas = list_quotas(conn, Scope.DEPARTMENT)
    rows = conn.execute(select(_departments).order_by(_departments.c.name))
    return [Department(row.name, row.share, quotas.get(row.name, NO_QUOTA)) for row in rows]


def find_department(conn: Connection, name: str) -> Department | None:
    return next((found for found in list_departments(conn) if found.name == name), None)


def list_projects_without_members(conn: Connection) -> list[Project]:
    """Who belongs to them says nothing about their share."""
    quotas = list_quotas(conn, Scope.PROJECT)
    return [
        Project(row.name, row.department, (), row.share, quotas.get(row.name, NO_QUOTA), row.data_class)
        for row in conn.execute(select(_projects))
    ]


def data_classes(conn: Connection) -> dict[str, int]:
    """Of all projects by name, but for those of class 0."""
    query = select(_projects.c.name, _projects.c.data_class).where(_projects.c.data_class > 0)
    return {row.name: row.data_class for row in conn.execute(query)}


def set_department_share(tx: Transaction, name: str, share: int) -> None:
    tx.conn.execute(update(_departments).where(_departments.c.name == name).values(share=share))
    tx.changes.rules = True


def set_project_share(tx: Transaction, name: str, share: int) -> None:
    tx.conn.execute(update(_projects).where(_projects.c.name == name).values(share=share))
    tx.changes.rules = True


def set_project_data_class(tx: Transaction, name: str, data_class: int) -> None:
    tx.conn.execute(update(_projects).where(_projects.c.name == name).values(data_class=data_class))
    tx.changes.rules = True
