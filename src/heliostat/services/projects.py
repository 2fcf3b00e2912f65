"""Departments, projects and who belongs to them.

An admin may do everything; a manager adds and removes the members of their project.
"""

import re

from heliostat.errors import Conflict, Forbidden
from heliostat.models import Caller, Department, Project, ProjectRole, User
from heliostat.services.acting import changed, found_project, found_user, invalid, no_project, shown
from heliostat.services.context import Context
from heliostat.services.rights import require_admin
from heliostat.store import people
from heliostat.store.database import Transaction

_GROUP_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_GROUP_NAME_RULE = "must be 1 to 63 of a-z 0-9 _ . - and begin with a letter or digit"


def create_department(context: Context, caller: Caller, name: str) -> Department:
    require_admin(caller.user)
    _check_group_name(name)

    def change(tx: Transaction, actor: User) -> Department:
        require_admin(actor)
        if people.has_department(tx.conn, name):
            raise Conflict(f"There is already a department {name}.", "Choose another name.")
        people.add_department(tx, name)
        people.add_audit(tx, caller, "department.create", name, {}, context.now())
        return Department(name)

    return changed(context, caller, change)


def list_departments(context: Context, caller: Caller) -> list[Department]:
    with context.store.read() as conn:
        return people.list_departments(conn)


def create_project(context: Context, caller: Caller, name: str, department: str) -> Project:
    require_admin(caller.user)
    _check_group_name(name)

    def change(tx: Transaction, actor: User) -> Project:
        require_admin(actor)
        if people.find_project(tx.conn, name) is not None:
            raise Conflict(f"There is already a project {name}.", "Choose another name.")
        if not people.has_department(tx.conn, department):
            raise invalid("department", f"there is no department {shown(department)}")
        people.add_project(tx, name, department)
        people.add_audit(tx, caller, "project.create", name, {"department": department}, context.now())
        return Project(name, department)

    return changed(context, caller, change)


def list_projects(context: Context, caller: Caller) -> list[Project]:
    """All for an admin, one's own for others."""
    mine = None if caller.user.is_admin else [membership.project for membership in caller.user.memberships]
    with context.store.read() as conn:
        return people.list_projects(conn, mine)


def get_project(context: Context, caller: Caller, name: str) -> Project:
    visible = caller.user.is_admin or caller.user.belongs_to(name)
    with context.store.read() as conn:
        project = people.find_project(conn, name) if visible else None
    if project is None:
        raise no_project(name)
    return project


def add_member(
    context: Context, caller: Caller, project: str, user: str, role: ProjectRole = ProjectRole.MEMBER
) -> Project:
    """Add them, or change their role. Only an admin makes and unmakes managers."""

    def change(tx: Transaction, actor: User) -> Project:
        present = _member_to_change(tx, actor, project, user)
        if role is ProjectRole.MANAGER and not actor.is_admin:
            raise Forbidden("Only an admin makes somebody a manager.", "Add them as a member, or ask an admin.")
        if present is not role:
            people.set_member(tx, project, user, role)
            people.add_audit(tx, caller, "project.add_member", project, _of(user, role), context.now())
        return found_project(tx, project)

    return changed(context, caller, change)


def remove_member(context: Context, caller: Caller, project: str, user: str) -> Project:
    """Already gone is success."""

    def change(tx: Transaction, actor: User) -> Project:
        present = _member_to_change(tx, actor, project, user)
        if present is not None:
            people.remove_member(tx, project, user)
            people.add_audit(tx, caller, "project.remove_member", project, _of(user, present), context.now())
        return found_project(tx, project)

    return changed(context, caller, change)


def _member_to_change(tx: Transaction, actor: User, project: str, user: str) -> ProjectRole | None:
    """The role they have now, once it is certain that the actor may change it."""
    if not actor.manages(project):
        raise Forbidden("Only a manager of the project or an admin may do this.", "Ask one of them.")
    found_project(tx, project)
    found_user(tx, user)
    present = people.member_role(tx.conn, project, user)
    if present is ProjectRole.MANAGER and not actor.is_admin:
        raise Forbidden("Only an admin changes or removes a manager.", "Ask an admin of this Heliostat.")
    return present


def _check_group_name(name: str) -> None:
    if _GROUP_NAME.fullmatch(name) is None:
        raise invalid("name", f"{shown(name)} {_GROUP_NAME_RULE}")


def _of(user: str, role: ProjectRole) -> dict[str, object]:
    return {"user": user, "role": role.value}
