"""Changing accounts and projects: by whom, checked again where it happens, and in words that are safe to print."""

import re
from collections.abc import Callable
from typing import TypeVar

from heliostat.errors import Forbidden, Invalid, NotFound
from heliostat.models import Caller, Project, User
from heliostat.services.context import Context
from heliostat.store import people
from heliostat.store.database import Transaction

T = TypeVar("T")
_GROUP_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_GROUP_NAME_RULE = "must be 1 to 63 of a-z 0-9 _ . - and begin with a letter or digit"


def changed(context: Context, caller: Caller, change: Callable[[Transaction, User], T]) -> T:
    """Make a change to people, given the caller as the database knows them now."""
    result = context.store.write(lambda tx: change(tx, _acting(tx, caller)))
    context.identities.forget()
    return result


def _acting(tx: Transaction, caller: Caller) -> User:
    user = people.find_user(tx.conn, caller.user.name)
    if user is None or not user.active:
        raise Forbidden(f"The account {caller.user.name} is deactivated.", "An admin can activate it again.")
    return user


def found_user(tx: Transaction, name: str) -> User:
    user = people.find_user(tx.conn, name)
    if user is None:
        raise no_user(name)
    return user


def found_project(tx: Transaction, name: str) -> Project:
    project = people.find_project(tx.conn, name)
    if project is None:
        raise no_project(name)
    return project


def check_group_name(name: str) -> None:
    """Of a department, project or reservation."""
    if _GROUP_NAME.fullmatch(name) is None:
        raise invalid("name", f"{shown(name)} {_GROUP_NAME_RULE}")


def shown(text: str) -> str:
    """Safe to print on any terminal, however odd and long the text is."""
    return ascii(text if len(text) <= 64 else text[:64] + "...")


def invalid(field: str, what: str) -> Invalid:
    return Invalid(f"{field}: {what}.", "Change that field and try again.", fields={field: what})


def no_user(name: str) -> NotFound:
    return NotFound(f"There is no user {shown(name)}.", "`helio user list` lists them.")


def no_project(name: str) -> NotFound:
    return NotFound(f"There is no project {shown(name)}.", "`helio project list` lists yours.")
