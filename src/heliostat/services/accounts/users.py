"""Accounts.

An admin may do everything; everybody else only looks after themselves. Rights are checked again inside each
transaction, because they may have gone since the request came in.
"""

import secrets
from dataclasses import dataclass, field, replace

from heliostat.auth.identities import is_account_name
from heliostat.errors import Conflict, Forbidden, NotAuthenticated, invalid_field, safe_repr
from heliostat.models import (
    AuditEntry,
    Caller,
    Membership,
    ProjectRole,
    Quota,
    Role,
    User,
)
from heliostat.services.accounts.lookup import require_user, user_not_found
from heliostat.services.accounts.quotas import QuotaChange, change_quota
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin, write_as_caller
from heliostat.store import accounts, web_logins
from heliostat.store.database import Transaction
from heliostat.store.shares_and_quotas import QuotaLevel

LOGIN_TOKEN_NAME = "login"  # noqa: S105 - the name of the tokens that a login makes

_USER_NAME_RULE = "must be 1 to 32 of a-z 0-9 _ . - and begin with a letter or _"


@dataclass(frozen=True, slots=True)
class NewUser:
    name: str
    role: Role = Role.USER
    unix_user: str | None = None
    password: str | None = None
    projects: tuple[str, ...] | None = None  # None: the default project


@dataclass(frozen=True, slots=True)
class UserChange:
    """What to change of an account; None leaves it."""

    role: Role | None = None
    active: bool | None = None
    unix_user: str | None = None
    clear_unix_user: bool = False
    quota: QuotaChange = field(default_factory=dict)


def create_user(context: Context, caller: Caller, new: NewUser) -> User:
    require_admin(caller.user)
    if not is_account_name(new.name):
        raise invalid_field("name", f"{safe_repr(new.name)} {_USER_NAME_RULE}")
    if new.name in context.identities.unix_accounts.local_admin_names():
        raise invalid_field(
            "name", "is kept for the Unix user who rules this machine; they get it at first contact"
        )
    unix_user = None if new.unix_user is None else _checked_unix_user(context, new.unix_user)
    hashed = None if new.password is None else context.identities.passwords.hash(new.password)
    projects = (
        (context.settings.auth.default_project,) if new.projects is None else tuple(dict.fromkeys(new.projects))
    )
    memberships = tuple(Membership(project, ProjectRole.MEMBER) for project in sorted(projects))
    user = User(new.name, new.role, unix_user, True, context.now(), memberships, hashed is not None)

    def change(tx: Transaction, actor: User) -> User:
        require_admin(actor)
        if accounts.find_user(tx.conn, user.name) is not None:
            raise Conflict(f"There is already an account {user.name}.", "Choose another name.")
        _require_free(tx, unix_user)
        if new.projects is None:
            accounts.ensure_project(
                tx, context.settings.auth.default_project, context.settings.auth.default_department
            )
        for project in projects:
            if accounts.find_project(tx.conn, project) is None:
                raise invalid_field("projects", f"there is no project {safe_repr(project)}")
        accounts.add_user(tx, user, hashed)
        detail = {"role": user.role.value, "unix_user": unix_user, "projects": sorted(projects)}
        accounts.add_audit_entry(tx, caller, "user.create", user.name, detail, context.now())
        return user

    return write_as_caller(context, caller, change)


def update_user(context: Context, caller: Caller, name: str, wish: UserChange) -> User:
    """Change role, activity, Unix user and quota, all of it or nothing."""
    require_admin(caller.user)
    unix_user = None if wish.unix_user is None else _checked_unix_user(context, wish.unix_user)
    rulers = context.identities.unix_accounts.local_admin_names()

    def change(tx: Transaction, actor: User) -> User:
        require_admin(actor)
        user = require_user(tx, name)
        if wish.role not in (None, user.role):
            _change_role(context, tx, caller, user, wish.role or user.role, rulers)
        if wish.active not in (None, user.active):
            _change_activity(context, tx, caller, user, bool(wish.active), rulers)
        if wish.clear_unix_user or wish.unix_user is not None:
            _change_unix_user(context, tx, caller, user, unix_user, rulers)
        if told := change_quota(tx, QuotaLevel.USER, name, user.quota, wish.quota):
            accounts.add_audit_entry(tx, caller, "user.quota", name, told, context.now())
        return require_user(tx, name)

    return write_as_caller(context, caller, change)


def set_password(context: Context, caller: Caller, name: str, password: str, current: str | None = None) -> None:
    """Whoever changes their own from afar must know the present one. Ends the logins of the account."""
    own = name == caller.user.name
    if not own:
        require_admin(caller.user)
    with context.store.read() as conn:
        before = accounts.get_password_hash(conn, name)
    proven = own and caller.via != "socket"
    if proven:
        _prove(context, caller, before, current)
    hashed = context.identities.passwords.hash(password)
    rulers = context.identities.unix_accounts.local_admin_names()

    def change(tx: Transaction, actor: User) -> None:
        if not own:
            require_admin(actor)
        user = require_user(tx, name)
        if not own and user.unix_user in rulers:
            raise Forbidden(
                f"Only {user.name} can set the password of {user.name}, for it opens the Unix account"
                f" {user.unix_user}.",
                f"Set it on the server as the Unix user {user.unix_user}.",
            )
        if proven and accounts.get_password_hash(tx.conn, name) != before:
            raise Conflict("The password has just been changed.", "Try again with the new one as the current one.")
        accounts.update_user(tx, name, password_hash=hashed)
        logins = [token.id for token in accounts.list_tokens(tx.conn, name) if token.name == LOGIN_TOKEN_NAME]
        accounts.revoke_tokens(tx, logins, context.now())
        web_logins.end_logins_of_user(tx, name, context.now())
        accounts.add_audit_entry(tx, caller, "user.password", name, {}, context.now())

    write_as_caller(context, caller, change)
    context.identities.web_logins.drop_codes(name)


def reset_password(context: Context, caller: Caller, name: str) -> str:
    """Gives somebody else a made-up password and ends their logins; it is told this once and kept nowhere."""
    if name == caller.user.name:
        raise Conflict("Your own password is changed by you.", "Type the present one and a new one.")
    password = generate_password()
    set_password(context, caller, name, password)
    return password


def generate_password() -> str:
    """Easy to read out, hopeless to guess: 79 bits."""
    return "-".join("".join(secrets.choice(_CLEAR_LETTERS) for _ in range(4)) for _ in range(4))


_CLEAR_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # without those that look alike


def list_users(context: Context, caller: Caller) -> list[User]:
    """Everybody for an admin; oneself and the people of one's projects for others."""
    with context.store.read() as conn:
        users = accounts.list_users(conn)
    return [_as_seen_by(caller.user, user) for user in users if _may_see(caller.user, user)]


def get_user(context: Context, caller: Caller, name: str) -> User:
    with context.store.read() as conn:
        user = accounts.find_user(conn, name)
    if user is None or not _may_see(caller.user, user):
        raise user_not_found(name)
    return _as_seen_by(caller.user, user)


def _require_another_admin(tx: Transaction, user: User) -> None:
    if user.is_admin and user.active and accounts.count_other_admins(tx.conn, user.name) == 0:
        raise Conflict(f"{user.name} is the last active admin.", "Make somebody else an admin first.")


def _require_not_ruler(user: User, rulers: frozenset[str]) -> None:
    """Root and the server's own user come in by the socket as admins whatever we note about them."""
    if user.unix_user in rulers:
        raise Conflict(
            f"{user.name} is the account of the Unix user {user.unix_user}, who rules this machine.",
            "That account stays an active admin under its own Unix user.",
        )


def _require_free(tx: Transaction, unix_user: str | None, owner: str | None = None) -> None:
    holder = None if unix_user is None else accounts.find_user_by_unix_name(tx.conn, unix_user)
    if holder is not None and holder.name != owner:
        raise Conflict(
            f"The Unix user {unix_user} belongs to the account {holder.name} already.",
            "Each account needs a Unix user of its own.",
        )


def _change_role(  # noqa: PLR0913, PLR0917
    context: Context, tx: Transaction, caller: Caller, user: User, role: Role, rulers: frozenset[str]
) -> None:
    if role is not Role.ADMIN:
        _require_not_ruler(user, rulers)
        _require_another_admin(tx, user)
    accounts.update_user(tx, user.name, role=role.value)
    detail = {"from": user.role.value, "to": role.value}
    accounts.add_audit_entry(tx, caller, "user.role", user.name, detail, context.now())


def _change_activity(  # noqa: PLR0913, PLR0917
    context: Context, tx: Transaction, caller: Caller, user: User, active: bool, rulers: frozenset[str]
) -> None:
    if active:
        accounts.update_user(tx, user.name, active=True)
        accounts.add_audit_entry(tx, caller, "user.activate", user.name, {}, context.now())
        return
    _require_not_ruler(user, rulers)
    _require_another_admin(tx, require_user(tx, user.name))
    accounts.update_user(tx, user.name, active=False)
    live = [token.id for token in accounts.list_tokens(tx.conn, user.name) if token.revoked_at is None]
    accounts.revoke_tokens(tx, live, context.now())
    web_logins.end_logins_of_user(tx, user.name, context.now())
    accounts.add_audit_entry(tx, caller, "user.deactivate", user.name, {"tokens": len(live)}, context.now())


def _change_unix_user(  # noqa: PLR0913, PLR0917
    context: Context,
    tx: Transaction,
    caller: Caller,
    user: User,
    unix_user: str | None,
    rulers: frozenset[str],
) -> None:
    if unix_user == user.unix_user:
        return
    _require_not_ruler(user, rulers)
    _require_free(tx, unix_user, owner=user.name)
    accounts.update_user(tx, user.name, unix_user=unix_user)
    detail = {"from": user.unix_user, "to": unix_user}
    accounts.add_audit_entry(tx, caller, "user.unix_user", user.name, detail, context.now())


def _checked_unix_user(context: Context, name: str) -> str:
    """The name under which the machine knows this person; only the socket itself proves root."""
    unix = context.identities.unix_accounts
    account = unix.find_by_name(name)
    if account is None:
        if context.engine.capabilities.runs_on_server_host:
            raise invalid_field("unix_user", f"this machine has no Unix user {safe_repr(name)}")
        if not is_account_name(name) or name == "root":
            raise invalid_field("unix_user", f"{safe_repr(name)} {_USER_NAME_RULE}, and not be root")
        return name
    if not account.is_person or unix.is_local_admin(account.uid):
        raise invalid_field(
            "unix_user", f"{safe_repr(name)} is a system account or runs Heliostat; no job may run as it"
        )
    return account.name


def _prove(context: Context, caller: Caller, before: str | None, current: str | None) -> None:
    if before is None:
        raise Forbidden(
            "This account has no password yet.", "Set the first one on the server itself, or ask an admin to."
        )
    if current is None:
        raise invalid_field("current", "the current password is needed to change it")
    try:
        context.identities.authenticate_password(caller.user.name, current, caller.address)
    except NotAuthenticated as error:
        raise invalid_field("current", "is not the current password") from error


def _may_see(viewer: User, user: User) -> bool:
    if viewer.is_admin or viewer.name == user.name:
        return True
    return any(viewer.is_member_of(membership.project) for membership in user.memberships)


def _as_seen_by(viewer: User, user: User) -> User:
    """Others see only what they share with the person."""
    if viewer.is_admin or viewer.name == user.name:
        return user
    shared = tuple(m for m in user.memberships if viewer.is_member_of(m.project))
    return replace(user, memberships=shared, has_password=False, unix_user=None, quota=Quota())


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Empty: everything."""

    user: str = ""  # who did it
    text: str = ""  # part of what was done, or to what


def list_audit_entries(
    context: Context,
    caller: Caller,
    limit: int = 100,
    cursor: str | None = None,
    only: AuditFilter = AuditFilter(),  # noqa: B008 - frozen
) -> tuple[list[AuditEntry], str | None]:
    """Newest first; with the cursor of the next page, None at the end."""
    require_admin(caller.user)
    if not 1 <= limit <= 500:
        raise invalid_field("limit", "must be between 1 and 500")
    before = None if cursor is None else _cursor_id(cursor)
    with context.store.read() as conn:
        entries = accounts.list_audit_entries(conn, limit + 1, before, only.user, only.text)
    more = len(entries) > limit
    return entries[:limit], str(entries[limit - 1].id) if more else None


def _cursor_id(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):  # longer overflows the database
        raise invalid_field("cursor", "must be the next_cursor of an earlier page")
    return int(cursor)
