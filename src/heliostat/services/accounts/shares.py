"""The fair-share tree as the caller may see it: all departments and projects, and the people of their own ones."""

from dataclasses import replace

from heliostat.engines.slurm.engine import SlurmEngine
from heliostat.models import Caller, User
from heliostat.scheduling.standing import Account, standing
from heliostat.services.accounts.slurm_shares import slurm_standing
from heliostat.services.context import Context
from heliostat.store.people import list_users

__all__ = ["Account", "counted_by", "share_tree"]


def share_tree(context: Context, caller: Caller) -> tuple[Account, ...]:
    """Departments, as the queue sees them now."""
    tree = _tree(context)
    return tuple(replace(one, below=tuple(_seen(project, caller.user) for project in one.below)) for one in tree)


def counted_by(context: Context) -> str:
    """Whose count of usage it is: `heliostat`, or `slurm`, which also counts jobs of plain sbatch."""
    return "slurm" if isinstance(context.engine, SlurmEngine) else "heliostat"


def _tree(context: Context) -> tuple[Account, ...]:
    if isinstance(context.engine, SlurmEngine):
        with context.store.read() as conn:
            names = {user.unix_user: user.name for user in list_users(conn) if user.unix_user}
        return slurm_standing(context.engine.accounts.used(), context.rules.accounts(), names)
    board = context.controller.fork()
    return standing(board.snapshot(context.now()), board.policy)


def _seen(project: Account, user: User) -> Account:
    if user.is_admin or user.belongs_to(project.name):
        return project
    return replace(project, below=tuple(one for one in project.below if one.name == user.name))
