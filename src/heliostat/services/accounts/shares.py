"""The fair-share tree as the caller may see it: all departments and projects, and the people of their own ones."""

from dataclasses import replace

from heliostat.models import Caller, User
from heliostat.scheduling.standing import Account, standing
from heliostat.services.context import Context

__all__ = ["Account", "counted_by", "share_tree"]


def share_tree(context: Context, caller: Caller) -> tuple[Account, ...]:
    """Departments, as the queue sees them now."""
    tree = _tree(context)
    return tuple(replace(one, below=tuple(_seen(project, caller.user) for project in one.below)) for one in tree)


def counted_by(context: Context) -> str:
    """Whose count of usage it is: `heliostat`, or `slurm`, which also counts jobs of plain sbatch."""
    return "slurm" if context.engine.name == "slurm" else "heliostat"


def _tree(context: Context) -> tuple[Account, ...]:
    if context.engine.name == "slurm":
        from heliostat.services.accounts.slurm import tree_by_slurm

        return tree_by_slurm(context)
    board = context.controller.fork()
    return standing(board.snapshot(context.now()), board.policy)


def _seen(project: Account, user: User) -> Account:
    if user.is_admin or user.belongs_to(project.name):
        return project
    return replace(project, below=tuple(one for one in project.below if one.name == user.name))
