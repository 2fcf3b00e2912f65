"""Lookup of users and projects by name, the default project, and rules for names of projects and departments."""

import re

from heliostat.errors import Forbidden, Invalid, NotFound, invalid_field, safe_repr
from heliostat.models import Project, User
from heliostat.services.context import Context
from heliostat.store import accounts
from heliostat.store.database import Transaction

_GROUP_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_GROUP_NAME_RULE = "must have 1 to 63 characters of a-z 0-9 _ . - and begin with a letter or digit"


def require_user(tx: Transaction, name: str) -> User:
    user = accounts.find_user(tx.conn, name)
    if user is None:
        raise user_not_found(name)
    return user


def require_project(tx: Transaction, name: str) -> Project:
    project = accounts.find_project(tx.conn, name)
    if project is None:
        raise project_not_found(name)
    return project


def check_entity_name(name: str) -> None:
    """For a department, project or reservation. Raises Invalid."""
    if _GROUP_NAME.fullmatch(name) is None:
        raise invalid_field("name", f"{safe_repr(name)} {_GROUP_NAME_RULE}")


def user_not_found(name: str) -> NotFound:
    return NotFound(f"There is no user {safe_repr(name)}.", "`helio user list` lists them.")


def project_not_found(name: str) -> NotFound:
    return NotFound(f"There is no project {safe_repr(name)}.", "`helio project list` lists yours.")


def find_default_project(context: Context, user: User) -> str | None:
    """The project of a job that names none; None: the user must name one."""
    default = context.settings.auth.default_project
    if default in _own_projects(user):  # a closed one is not replaced by a project that the user has not chosen
        return default if project_closed_reason(context, default) is None else None
    own_projects = [name for name in _own_projects(user) if project_closed_reason(context, name) is None]
    return own_projects[0] if len(own_projects) == 1 else None


def require_unix_user_and_project(context: Context, user: User, project: str | None) -> tuple[str, str]:
    """The Unix user that jobs of this user run as, and the project; None: the default one. Raises Invalid."""
    return require_unix_user(user), resolve_project(context, user, project)


def require_unix_user(user: User) -> str:
    if user.unix_user is None:
        raise Forbidden(
            "Your account has no Unix user on this server, so it cannot run jobs.",
            f"An admin can set one: helio user set {user.name} --unix-user NAME.",
        )
    return user.unix_user


def is_unix_user_missing(context: Context, user: User) -> bool:
    """Whether the user's Unix user has been removed from the machine that jobs run on."""
    if user.unix_user is None or not context.engine.capabilities.runs_on_server_host:
        return False
    return context.authenticator.unix_accounts.find_by_name(user.unix_user) is None


def project_closed_reason(context: Context, name: str) -> str | None:
    """Why the project accepts no new jobs; None: it does."""
    project = context.scheduling_rules.share_accounts().projects.get(name)
    if project is None or project.closes_at is None or not project.is_closed(context.now()):
        return None
    return f"project {name} is closed since {project.closes_at:%Y-%m-%d %H:%M} UTC: it accepts no new jobs"


def _own_projects(user: User) -> list[str]:
    return [membership.project for membership in user.memberships]


def resolve_project(context: Context, user: User, name: str | None) -> str:
    """The project of a new job; None: the user's default project. Raises Invalid, also if it is closed."""
    own_projects = [own for own in _own_projects(user) if project_closed_reason(context, own) is None]
    hint = f"Your projects: {', '.join(own_projects) or 'none is open; ask an admin to add you to one'}."
    if name is None:
        if (default := find_default_project(context, user)) is not None:
            return default
        message = _closed_default_message(context, user) or "No project is given."
        raise Invalid(message, f"Add --project NAME. {hint}", fields={"project": "missing"})
    with context.store.read() as conn:
        exists = accounts.find_project(conn, name) is not None
    if name in _own_projects(user) or (exists and user.is_admin):
        if reason := project_closed_reason(context, name):
            hint = f"{hint} An admin can open it again: helio project set {name} --closes none"
            raise Invalid(_sentence(reason), hint, fields={"project": "is closed"})
        return name
    # The same message whether the project exists or not, so that it reveals no project names.
    raise Invalid(f"You are not a member of a project {name!r}.", hint, fields={"project": "not one of yours"})


def _closed_default_message(context: Context, user: User) -> str | None:
    """Why a job that names no project is refused; None: the user has several open ones, or none at all."""
    names = _own_projects(user)
    closed = {name: reason for name in names if (reason := project_closed_reason(context, name))}
    if reason := closed.get(context.settings.auth.default_project):
        return _sentence(reason)
    return _sentence("; ".join(closed.values())) if closed and len(closed) == len(names) else None


def _sentence(reason: str) -> str:
    return f"{reason[0].upper()}{reason[1:]}."
