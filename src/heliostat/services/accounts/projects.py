"""Departments, projects and their members.

An admin may change everything; a manager adds and removes members of their own project.
"""

from dataclasses import dataclass, field
from datetime import datetime

from heliostat.errors import Conflict, Forbidden, NotFound, invalid_field, safe_repr
from heliostat.models import Caller, Department, Project, ProjectRole, User
from heliostat.services.accounts.data_classes import MAX_DATA_CLASS, project_data_class_warning
from heliostat.services.accounts.quotas import QuotaChange, change_quota
from heliostat.services.accounts.required_accounts import (
    check_entity_name,
    project_not_found,
    require_project,
    require_user,
)
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin, write_as_caller
from heliostat.store import accounts, projects_and_quotas
from heliostat.store.database import Transaction
from heliostat.store.projects_and_quotas import QuotaLevel
from heliostat.store.timestamps import to_timestamp

MAX_SHARE = 10_000


@dataclass(frozen=True, slots=True)
class ProjectOrDepartmentChange:
    """Changes to a department or project; None: unchanged. Departments have only a share and a quota."""

    share: int | None = None
    data_class: int | None = None
    quota: QuotaChange = field(default_factory=dict)
    department: str | None = None
    closes_at: datetime | None = None  # the project accepts no new jobs from then on
    reopen: bool = False


def create_department(context: Context, caller: Caller, name: str) -> Department:
    require_admin(caller.user)
    check_entity_name(name)

    def change(tx: Transaction, actor: User) -> Department:
        require_admin(actor)
        if accounts.has_department(tx.conn, name):
            raise Conflict(f"There is already a department {name}.", "Choose another name.")
        accounts.add_department(tx, name)
        accounts.add_audit_entry(tx, caller, "department.create", name, {}, context.now())
        return Department(name)

    return write_as_caller(context, caller, change)


def list_departments(context: Context, caller: Caller) -> list[Department]:
    with context.store.read() as conn:
        return projects_and_quotas.list_departments(conn)


def update_department(
    context: Context, caller: Caller, name: str, changes: ProjectOrDepartmentChange
) -> Department:
    """Change share and quota in one transaction."""
    require_admin(caller.user)
    _check_share(changes.share)

    def change(tx: Transaction, actor: User) -> Department:
        require_admin(actor)
        before = _require_department(tx, name)
        details = change_quota(tx, QuotaLevel.DEPARTMENT, name, before.quota, changes.quota)
        if changes.share not in (None, before.share):
            projects_and_quotas.set_department_share(tx, name, changes.share or before.share)
            details["share"] = [before.share, changes.share]
        if details:
            accounts.add_audit_entry(tx, caller, "department.set", name, details, context.now())
        return _require_department(tx, name)

    return write_as_caller(context, caller, change)


def create_project(context: Context, caller: Caller, name: str, department: str) -> Project:
    require_admin(caller.user)
    check_entity_name(name)

    def change(tx: Transaction, actor: User) -> Project:
        require_admin(actor)
        if accounts.find_project(tx.conn, name) is not None:
            raise Conflict(f"There is already a project {name}.", "Choose another name.")
        _check_department(tx, department)
        accounts.add_project(tx, name, department)
        accounts.add_audit_entry(tx, caller, "project.create", name, {"department": department}, context.now())
        return Project(name, department)

    return write_as_caller(context, caller, change)


def update_project(
    context: Context, caller: Caller, name: str, changes: ProjectOrDepartmentChange
) -> tuple[Project, str | None]:
    """Change all fields in one transaction; with a warning about affected jobs.

    A new data class applies to waiting jobs at once; running jobs are not stopped. A closed project accepts no new
    jobs; those that it has run to their end.
    """
    require_admin(caller.user)
    _check_share(changes.share)
    if changes.data_class is not None and not 0 <= changes.data_class <= MAX_DATA_CLASS:
        raise invalid_field("data_class", f"must be between 0 (open) and {MAX_DATA_CLASS} (secret)")

    def change(tx: Transaction, actor: User) -> Project:
        require_admin(actor)
        if details := _change_project(tx, require_project(tx, name), changes):
            accounts.add_audit_entry(tx, caller, "project.set", name, details, context.now())
        return require_project(tx, name)

    project = write_as_caller(context, caller, change)
    return project, None if changes.data_class is None else project_data_class_warning(context, name)


def list_projects(context: Context, caller: Caller) -> list[Project]:
    """All for an admin, the caller's own for others."""
    own_projects = None if caller.user.is_admin else [membership.project for membership in caller.user.memberships]
    with context.store.read() as conn:
        return accounts.list_projects(conn, own_projects)


def get_project(context: Context, caller: Caller, name: str) -> Project:
    visible = caller.user.is_admin or caller.user.is_member_of(name)
    with context.store.read() as conn:
        project = accounts.find_project(conn, name) if visible else None
    if project is None:
        raise project_not_found(name)
    return project


def add_member(
    context: Context, caller: Caller, project: str, user: str, role: ProjectRole = ProjectRole.MEMBER
) -> Project:
    """Add a member, or change the role of one. Only an admin appoints and removes managers."""

    def change(tx: Transaction, actor: User) -> Project:
        current_role = _member_to_change(tx, actor, project, user)
        if role is ProjectRole.MANAGER and not actor.is_admin:
            raise Forbidden("Only an admin can appoint a manager.", "Add the user as a member, or ask an admin.")
        if current_role is not role:
            accounts.set_member(tx, project, user, role)
            accounts.add_audit_entry(
                tx, caller, "project.add_member", project, _member_details(user, role), context.now()
            )
        return require_project(tx, project)

    return write_as_caller(context, caller, change)


def remove_member(context: Context, caller: Caller, project: str, user: str) -> Project:
    """Does nothing if the user is not a member."""

    def change(tx: Transaction, actor: User) -> Project:
        current_role = _member_to_change(tx, actor, project, user)
        if current_role is not None:
            accounts.remove_member(tx, project, user)
            accounts.add_audit_entry(
                tx, caller, "project.remove_member", project, _member_details(user, current_role), context.now()
            )
        return require_project(tx, project)

    return write_as_caller(context, caller, change)


def _member_to_change(tx: Transaction, actor: User, project: str, user: str) -> ProjectRole | None:
    """The user's current role; None: not a member. Raises Forbidden if the actor may not change it."""
    if not actor.may_manage(project):
        raise Forbidden("Only a manager of the project or an admin may do this.", "Ask a manager or an admin.")
    require_project(tx, project)
    require_user(tx, user)
    current_role = accounts.find_member_role(tx.conn, project, user)
    if current_role is ProjectRole.MANAGER and not actor.is_admin:
        raise Forbidden("Only an admin can change or remove a manager.", "Ask an admin of this cluster.")
    return current_role


def _change_project(tx: Transaction, before: Project, changes: ProjectOrDepartmentChange) -> dict[str, object]:
    """Old and new value of each changed field, for the audit log."""
    details = change_quota(tx, QuotaLevel.PROJECT, before.name, before.quota, changes.quota)
    if changes.department is not None:
        _check_department(tx, changes.department)
    values: dict[str, object] = {
        "share": changes.share,
        "data_class": changes.data_class,
        "department": changes.department,
    }
    new = {name: value for name, value in values.items() if value not in (None, getattr(before, name))}
    details |= {name: [getattr(before, name), value] for name, value in new.items()}
    closes_at = None if changes.reopen else changes.closes_at or before.closes_at
    if closes_at != before.closes_at:
        new["closes_at"] = to_timestamp(closes_at)
        details["closes_at"] = [_iso(before.closes_at), _iso(closes_at)]
    if new:
        projects_and_quotas.update_project(tx, before.name, **new)
    return details


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _check_department(tx: Transaction, name: str) -> None:
    if not accounts.has_department(tx.conn, name):
        raise invalid_field("department", f"there is no department {safe_repr(name)}")


def _require_department(tx: Transaction, name: str) -> Department:
    department = projects_and_quotas.find_department(tx.conn, name)
    if department is None:
        raise NotFound(f"There is no department {safe_repr(name)}.", "`helio department list` lists them.")
    return department


def _check_share(share: int | None) -> None:
    if share is not None and not 1 <= share <= MAX_SHARE:
        raise invalid_field("share", f"must be between 1 and {MAX_SHARE}")


def _member_details(user: str, role: ProjectRole) -> dict[str, object]:
    return {"user": user, "role": role.value}
