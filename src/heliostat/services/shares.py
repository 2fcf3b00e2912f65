"""The fair-share tree as the caller may see it: all departments and projects, and the people of their own ones."""

from dataclasses import replace

from heliostat.models import Caller, User
from heliostat.scheduling.standing import Account, standing
from heliostat.services.context import Context

__all__ = ["Account", "share_tree"]


def share_tree(context: Context, caller: Caller) -> tuple[Account, ...]:
    """Departments, as the queue sees them now."""
    board = context.controller.fork()
    tree = standing(board.snapshot(context.now()), board.policy)
    return tuple(replace(one, below=tuple(_seen(project, caller.user) for project in one.below)) for one in tree)


def _seen(project: Account, user: User) -> Account:
    if user.is_admin or user.belongs_to(project.name):
        return project
    return replace(project, below=tuple(one for one in project.below if one.name == user.name))
