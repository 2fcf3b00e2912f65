"""Departments, projects, users, tokens and the audit log in the database."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, or_, select, update
from sqlalchemy.sql import ColumnElement

from heliostat.models import (
    AuditEntry,
    Caller,
    Membership,
    Project,
    ProjectRole,
    Quota,
    Role,
    Token,
    TokenScope,
    User,
)
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.projects_and_quotas import NO_QUOTA, QuotaLevel, find_quota, list_quotas, row_to_project
from heliostat.store.timestamps import to_datetime, to_timestamp

_users, _memberships, _tokens, _audit = schema.users, schema.memberships, schema.tokens, schema.audit
_projects, _departments = schema.projects, schema.departments


def find_user(conn: Connection, name: str) -> User | None:
    return _one_user(conn, _users.c.name == name) if _is_text(name) else None


def find_user_by_unix_name(conn: Connection, unix_user: str) -> User | None:
    """The user whose jobs run as this Unix user."""
    return _one_user(conn, _users.c.unix_user == unix_user)


def list_users(conn: Connection) -> list[User]:
    memberships: dict[str, list[Membership]] = defaultdict(list)
    for row in conn.execute(select(_memberships).order_by(_memberships.c.project)):
        memberships[row.user].append(_membership(row))
    quotas = list_quotas(conn, QuotaLevel.USER)
    rows = conn.execute(select(_users).order_by(_users.c.name))
    return [_user(row, memberships[row.name], quotas.get(row.name, NO_QUOTA)) for row in rows]


def get_password_hash(conn: Connection, name: str) -> str | None:
    return conn.execute(select(_users.c.password_hash).where(_users.c.name == name)).scalar()


def count_other_admins(conn: Connection, name: str) -> int:
    """Active admins besides this one."""
    query = select(func.count()).where(
        _users.c.role == Role.ADMIN.value, _users.c.active.is_(True), _users.c.name != name
    )
    return conn.execute(query).scalar_one()


def add_user(tx: Transaction, user: User, password_hash: str | None = None) -> None:
    tx.conn.execute(
        insert(_users).values(
            name=user.name,
            role=user.role.value,
            unix_user=user.unix_user,
            active=user.active,
            password_hash=password_hash,
            created_at=to_timestamp(user.created_at),
        )
    )
    for membership in user.memberships:
        set_member(tx, membership.project, user.name, membership.role)


def update_user(tx: Transaction, name: str, **columns: Any) -> None:
    tx.conn.execute(update(_users).where(_users.c.name == name).values(columns))


def has_department(conn: Connection, name: str) -> bool:
    query = select(_departments.c.name).where(_departments.c.name == name)
    return _is_text(name) and conn.execute(query).first() is not None


def add_department(tx: Transaction, name: str) -> None:
    tx.conn.execute(insert(_departments).values(name=name))
    tx.changes.rules_changed = True


def find_project(conn: Connection, name: str) -> Project | None:
    if not _is_text(name):
        return None
    row = conn.execute(select(_projects).where(_projects.c.name == name)).first()
    if row is None:
        return None
    return row_to_project(row, _members(conn, [name])[name], find_quota(conn, QuotaLevel.PROJECT, name))


def list_projects(conn: Connection, names: Collection[str] | None = None) -> list[Project]:
    """All projects, or those with these names."""
    statement = select(_projects).order_by(_projects.c.name)
    if names is not None:
        statement = statement.where(_projects.c.name.in_(names))
    members, quotas = _members(conn, names), list_quotas(conn, QuotaLevel.PROJECT)
    rows = conn.execute(statement)
    return [row_to_project(row, members[row.name], quotas.get(row.name, NO_QUOTA)) for row in rows]


def add_project(tx: Transaction, name: str, department: str) -> None:
    tx.conn.execute(insert(_projects).values(name=name, department=department))
    tx.changes.rules_changed = True


def ensure_project(tx: Transaction, name: str, department: str) -> None:
    """An existing project keeps its department."""
    if find_project(tx.conn, name) is not None:
        return
    if not has_department(tx.conn, department):
        add_department(tx, department)
    add_project(tx, name, department)


def find_member_role(conn: Connection, project: str, user: str) -> ProjectRole | None:
    query = select(_memberships.c.role).where(*_is_member(project, user))
    role = conn.execute(query).scalar()
    return None if role is None else ProjectRole(role)


def set_member(tx: Transaction, project: str, user: str, role: ProjectRole) -> None:
    """Add a member or change the role."""
    remove_member(tx, project, user)
    tx.conn.execute(insert(_memberships).values(project=project, user=user, role=role.value))


def remove_member(tx: Transaction, project: str, user: str) -> None:
    tx.conn.execute(delete(_memberships).where(*_is_member(project, user)))


def add_token(tx: Transaction, token: Token, digest: str) -> Token:
    """Store the token; return it with its id."""
    row = tx.conn.execute(
        insert(_tokens)
        .values(
            user=token.user,
            name=token.name,
            digest=digest,
            created_at=to_timestamp(token.created_at),
            expires_at=to_timestamp(token.expires_at),
            scope=token.scope.value,
        )
        .returning(_tokens)
    ).one()
    return _token(row)


def find_token(conn: Connection, token_id: int) -> Token | None:
    row = conn.execute(select(_tokens).where(_tokens.c.id == token_id)).first()
    return None if row is None else _token(row)


def find_token_by_digest(conn: Connection, digest: str) -> Token | None:
    row = conn.execute(select(_tokens).where(_tokens.c.digest == digest)).first()
    return None if row is None else _token(row)


def list_tokens(conn: Connection, user: str) -> list[Token]:
    """Newest first, including expired and revoked tokens."""
    rows = conn.execute(select(_tokens).where(_tokens.c.user == user).order_by(_tokens.c.id.desc()))
    return [_token(row) for row in rows]


def revoke_tokens(tx: Transaction, token_ids: Collection[int], at: datetime) -> None:
    tx.conn.execute(
        update(_tokens)
        .where(_tokens.c.id.in_(token_ids), _tokens.c.revoked_at.is_(None))
        .values(revoked_at=to_timestamp(at))
    )


def remove_expired_tokens(tx: Transaction, user: str, before: datetime) -> None:
    """Remove tokens of a user that expired or were revoked before then. The newest token of all users stays, so
    that no id is used twice."""
    newest = select(func.max(_tokens.c.id)).scalar_subquery()
    is_expired = or_(_tokens.c.expires_at < to_timestamp(before), _tokens.c.revoked_at < to_timestamp(before))
    tx.conn.execute(delete(_tokens).where(_tokens.c.user == user, _tokens.c.id != newest, is_expired))


def set_tokens_last_used(tx: Transaction, used: Mapping[int, datetime]) -> None:
    for token_id, at in used.items():
        tx.conn.execute(update(_tokens).where(_tokens.c.id == token_id).values(last_used_at=to_timestamp(at)))


def add_audit_entry(  # noqa: PLR0913, PLR0917 - the columns of an entry
    tx: Transaction, caller: Caller, action: str, target: str, detail: Mapping[str, object], at: datetime
) -> None:
    """Admins can read the detail and it is never deleted: it must not contain secrets."""
    tx.conn.execute(
        insert(_audit).values(
            at=to_timestamp(at),
            user=caller.user.name,
            via=caller.via,
            address=caller.address,
            action=action,
            target=target,
            detail=dict(detail),
        )
    )


def add_failed_login_entry(
    tx: Transaction, target: str, address: str, detail: Mapping[str, object], at: datetime
) -> None:
    """An audit entry without a user: the login failed."""
    entry = {"user": "-", "via": "password", "action": "login.failed", "target": target, "address": address}
    tx.conn.execute(insert(_audit).values(at=to_timestamp(at), detail=dict(detail), **entry))


def list_audit_entries(
    conn: Connection, limit: int, before_id: int | None = None, user: str = "", text: str = ""
) -> list[AuditEntry]:
    """Newest first, older than the given entry; of this user, with this text in the action or the target."""
    statement = select(_audit).order_by(_audit.c.id.desc()).limit(limit)
    if user:
        statement = statement.where(_audit.c.user == user)
    if text:
        matches = (column.icontains(text, autoescape=True) for column in (_audit.c.action, _audit.c.target))
        statement = statement.where(or_(*matches))
    if before_id is not None:
        statement = statement.where(_audit.c.id < before_id)
    return [_entry(row) for row in conn.execute(statement)]


def _is_text(name: str) -> bool:
    """Whether it can be encoded: JSON can contain a lone surrogate, which SQLite refuses."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _one_user(conn: Connection, condition: ColumnElement[bool]) -> User | None:
    row = conn.execute(select(_users).where(condition)).first()
    if row is None:
        return None
    query = select(_memberships).where(_memberships.c.user == row.name).order_by(_memberships.c.project)
    memberships = [_membership(membership) for membership in conn.execute(query)]
    return _user(row, memberships, find_quota(conn, QuotaLevel.USER, row.name))


def _members(conn: Connection, projects: Collection[str] | None) -> dict[str, list[tuple[str, ProjectRole]]]:
    statement = select(_memberships).order_by(_memberships.c.user)
    if projects is not None:
        statement = statement.where(_memberships.c.project.in_(projects))
    members: dict[str, list[tuple[str, ProjectRole]]] = defaultdict(list)
    for row in conn.execute(statement):
        members[row.project].append((row.user, ProjectRole(row.role)))
    return members


def _is_member(project: str, user: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return _memberships.c.project == project, _memberships.c.user == user


def _user(row: Row[Any], memberships: Collection[Membership], quota: Quota) -> User:
    return User(
        name=row.name,
        role=Role(row.role),
        unix_user=row.unix_user,
        active=row.active,
        created_at=to_datetime(row.created_at),
        memberships=tuple(memberships),
        has_password=row.password_hash is not None,
        quota=quota,
    )


def _membership(row: Row[Any]) -> Membership:
    return Membership(row.project, ProjectRole(row.role))


def _token(row: Row[Any]) -> Token:
    return Token(
        id=row.id,
        user=row.user,
        name=row.name,
        created_at=to_datetime(row.created_at),
        expires_at=to_datetime(row.expires_at),
        last_used_at=to_datetime(row.last_used_at),
        revoked_at=to_datetime(row.revoked_at),
        scope=TokenScope(row.scope),
    )


def _entry(row: Row[Any]) -> AuditEntry:
    return AuditEntry(
        row.id, to_datetime(row.at), row.user, row.via, row.address, row.action, row.target, row.detail
    )
