"""User accounts: roles, passwords and Unix users.

An admin may change every account, other users only their own. Permissions are checked again inside each
transaction, because they may have changed since the request arrived.
"""

import secrets
from dataclasses import dataclass, field, replace

from heliostat.auth.authentication import is_account_name
from heliostat.errors import Conflict, Forbidden, NotAuthenticated, invalid_field, safe_repr
from heliostat.models import (
    Caller,
    Membership,
    ProjectRole,
    Quota,
    Role,
    User,
)
from heliostat.services.accounts.quotas import QuotaChange, change_quota
from heliostat.services.accounts.required_accounts import require_user, user_not_found
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin, write_as_caller
from heliostat.store import accounts, web_logins
from heliostat.store.database import Transaction
from heliostat.store.projects_and_quotas import QuotaLevel

LOGIN_TOKEN_NAME = "login"  # noqa: S105 - the name of the tokens that a login creates

_USER_NAME_RULE = "must have 1 to 32 characters of a-z 0-9 _ . - and begin with a letter or _"


@dataclass(frozen=True, slots=True)
class NewUser:
    name: str
    role: Role = Role.USER
    unix_user: str | None = None
    password: str | None = None
    projects: tuple[str, ...] | None = None  # None: the default project


@dataclass(frozen=True, slots=True)
class UserChange:
    """Changes to an account; None: unchanged."""

    role: Role | None = None
    active: bool | None = None
    unix_user: str | None = None
    clear_unix_user: bool = False
    quota: QuotaChange = field(default_factory=dict)


def create_user(context: Context, caller: Caller, new: NewUser) -> User:
    require_admin(caller.user)
    if not is_account_name(new.name):
        raise invalid_field("name", f"{safe_repr(new.name)} {_USER_NAME_RULE}")
    if new.name in context.authenticator.unix_accounts.local_admin_names():
        raise invalid_field(
            "name",
            "is reserved for the Unix user that administers this server; it is created at their first login",
        )
    unix_user = None if new.unix_user is None else _checked_unix_user(context, new.unix_user)
    hashed = None if new.password is None else context.authenticator.passwords.hash(new.password, new.name)
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


def update_user(context: Context, caller: Caller, name: str, changes: UserChange) -> User:
    """Change role, activity, Unix user and quota in one transaction."""
    require_admin(caller.user)
    unix_user = None if changes.unix_user is None else _checked_unix_user(context, changes.unix_user)
    local_admins = context.authenticator.unix_accounts.local_admin_names()

    def change(tx: Transaction, actor: User) -> User:
        require_admin(actor)
        user = require_user(tx, name)
        if changes.role not in (None, user.role):
            _change_role(context, tx, caller, user, changes.role or user.role, local_admins)
        if changes.active not in (None, user.active):
            _change_activity(context, tx, caller, user, bool(changes.active), local_admins)
        if changes.clear_unix_user or changes.unix_user is not None:
            _change_unix_user(context, tx, caller, user, unix_user, local_admins)
        if details := change_quota(tx, QuotaLevel.USER, name, user.quota, changes.quota):
            accounts.add_audit_entry(tx, caller, "user.quota", name, details, context.now())
        return require_user(tx, name)

    return write_as_caller(context, caller, change)


def set_password(context: Context, caller: Caller, name: str, password: str, current: str | None = None) -> None:
    """Ends the logins of the account. `current` is required for the caller's own password, except on the
    socket."""
    own = name == caller.user.name
    if not own:
        require_admin(caller.user)
    with context.store.read() as conn:
        before = accounts.get_password_hash(conn, name)
    needs_current = own and caller.via != "socket"
    if needs_current:
        _check_current_password(context, caller, before, current)
    hashed = context.authenticator.passwords.hash(password, name)
    local_admins = context.authenticator.unix_accounts.local_admin_names()

    def change(tx: Transaction, actor: User) -> None:
        if not own:
            require_admin(actor)
        user = require_user(tx, name)
        if not own and user.unix_user in local_admins:
            raise Forbidden(
                f"Only {user.name} can set the password of {user.name}: "
                f"it gives access to the Unix account {user.unix_user}.",
                f"Set it on the server as the Unix user {user.unix_user}.",
            )
        if needs_current and accounts.get_password_hash(tx.conn, name) != before:
            raise Conflict(
                "The password has just been changed.", "Try again with the new password as the current one."
            )
        accounts.update_user(tx, name, password_hash=hashed)
        logins = [token.id for token in accounts.list_tokens(tx.conn, name) if token.name == LOGIN_TOKEN_NAME]
        accounts.revoke_tokens(tx, logins, context.now())
        web_logins.end_logins_of_user(tx, name, context.now())
        accounts.add_audit_entry(tx, caller, "user.password", name, {}, context.now())

    write_as_caller(context, caller, change)
    context.authenticator.web_logins.drop_codes(name)


def reset_password(context: Context, caller: Caller, name: str) -> str:
    """Give another user a generated password and end their logins. The password is returned once and not
    stored."""
    if name == caller.user.name:
        raise Conflict("You cannot reset your own password.", "Enter the current password and a new one.")
    password = generate_password()
    set_password(context, caller, name, password)
    return password


def generate_password() -> str:
    """Easy to read aloud, with 79 bits of entropy."""
    return "-".join("".join(secrets.choice(_CLEAR_LETTERS) for _ in range(4)) for _ in range(4))


_CLEAR_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # without letters and digits that look alike


def list_users(context: Context, caller: Caller) -> list[User]:
    """All users for an admin; for others, the caller and the members of the caller's projects."""
    with context.store.read() as conn:
        users = accounts.list_users(conn)
    return [_redacted_for(caller.user, user) for user in users if _may_see(caller.user, user)]


def get_user(context: Context, caller: Caller, name: str) -> User:
    with context.store.read() as conn:
        user = accounts.find_user(conn, name)
    if user is None or not _may_see(caller.user, user):
        raise user_not_found(name)
    return _redacted_for(caller.user, user)


def _require_another_admin(tx: Transaction, user: User) -> None:
    if user.is_admin and user.active and accounts.count_other_admins(tx.conn, user.name) == 0:
        raise Conflict(f"{user.name} is the last active admin.", "Make another user an admin first.")


def _require_not_local_admin(user: User, local_admins: frozenset[str]) -> None:
    """Root and the server's own Unix user are always admins on the socket, whatever is stored for them."""
    if user.unix_user in local_admins:
        raise Conflict(
            f"{user.name} is the account of the Unix user {user.unix_user}, which administers this server.",
            "That account stays an active admin with its own Unix user.",
        )


def _require_free(tx: Transaction, unix_user: str | None, owner: str | None = None) -> None:
    holder = None if unix_user is None else accounts.find_user_by_unix_name(tx.conn, unix_user)
    if holder is not None and holder.name != owner:
        raise Conflict(
            f"The Unix user {unix_user} already belongs to the account {holder.name}.",
            "Each account needs a Unix user of its own.",
        )


def _change_role(  # noqa: PLR0913, PLR0917
    context: Context, tx: Transaction, caller: Caller, user: User, role: Role, local_admins: frozenset[str]
) -> None:
    if role is not Role.ADMIN:
        _require_not_local_admin(user, local_admins)
        _require_another_admin(tx, user)
    accounts.update_user(tx, user.name, role=role.value)
    detail = {"from": user.role.value, "to": role.value}
    accounts.add_audit_entry(tx, caller, "user.role", user.name, detail, context.now())


def _change_activity(  # noqa: PLR0913, PLR0917
    context: Context, tx: Transaction, caller: Caller, user: User, active: bool, local_admins: frozenset[str]
) -> None:
    if active:
        accounts.update_user(tx, user.name, active=True)
        accounts.add_audit_entry(tx, caller, "user.activate", user.name, {}, context.now())
        return
    _require_not_local_admin(user, local_admins)
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
    local_admins: frozenset[str],
) -> None:
    if unix_user == user.unix_user:
        return
    _require_not_local_admin(user, local_admins)
    _require_free(tx, unix_user, owner=user.name)
    accounts.update_user(tx, user.name, unix_user=unix_user)
    detail = {"from": user.unix_user, "to": unix_user}
    accounts.add_audit_entry(tx, caller, "user.unix_user", user.name, detail, context.now())


def _checked_unix_user(context: Context, name: str) -> str:
    """The Unix user's name on this server. Never root: only the socket authenticates root."""
    unix = context.authenticator.unix_accounts
    account = unix.find_by_name(name)
    if account is None:
        if context.engine.capabilities.runs_on_server_host:
            raise invalid_field("unix_user", f"this server has no Unix user {safe_repr(name)}")
        if not is_account_name(name) or name == "root":
            raise invalid_field("unix_user", f"{safe_repr(name)} {_USER_NAME_RULE}, and not be root")
        return name
    if not account.is_person or unix.is_local_admin(account.uid):
        raise invalid_field(
            "unix_user", f"{safe_repr(name)} is a system account or runs Heliostat; no job may run as it"
        )
    return account.name


def _check_current_password(context: Context, caller: Caller, before: str | None, current: str | None) -> None:
    if before is None:
        raise Forbidden(
            "This account has no password yet.", "Set the first one on the server itself, or ask an admin."
        )
    if current is None:
        raise invalid_field("current", "the current password is required to change it")
    try:
        context.authenticator.authenticate_password(caller.user.name, current, caller.address)
    except NotAuthenticated as error:
        raise invalid_field("current", "is not the current password") from error


def _may_see(viewer: User, user: User) -> bool:
    if viewer.is_admin or viewer.name == user.name:
        return True
    return any(viewer.is_member_of(membership.project) for membership in user.memberships)


def _redacted_for(viewer: User, user: User) -> User:
    """Other users see only the memberships that they share with this user."""
    if viewer.is_admin or viewer.name == user.name:
        return user
    shared = tuple(m for m in user.memberships if viewer.is_member_of(m.project))
    return replace(user, memberships=shared, has_password=False, unix_user=None, quota=Quota())
