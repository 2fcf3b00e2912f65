"""Other GPUs for a node while the cluster runs: for admins."""

import re
from collections.abc import Mapping

from heliostat.engines.contract import RecomposesNodes
from heliostat.errors import Conflict, invalid_field, printable
from heliostat.models import Caller, Recomposition, User
from heliostat.services.cluster.nodes import get_node
from heliostat.services.context import Context
from heliostat.services.rights import require_admin, write_as
from heliostat.store import people
from heliostat.store.database import Transaction

_KIND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_MOST_GPUS = 64
_MOST_KINDS = 8


def recompose_node(
    context: Context, caller: Caller, name: str, gpus: Mapping[str, int], *, dry_run: bool = False
) -> Recomposition:
    """Begin to give a node these GPUs, instead of those it has; running jobs end first. Returns at once."""
    require_admin(caller.user)
    engine = _engine(context)
    if engine.recomposition(name) is None:
        get_node(context, name)
    _check(gpus)
    wish = engine.recompose(name, gpus, dry_run=dry_run)
    if dry_run:
        return wish

    def note(tx: Transaction, actor: User) -> None:
        require_admin(actor)
        people.add_audit(tx, caller, "node.recompose", f"node {name}", {"gpus": dict(gpus)}, context.now())

    write_as(context, caller, note)
    return wish


def show_recomposition(context: Context, caller: Caller, name: str) -> Recomposition | None:
    """How far it is; None: nothing is being changed there."""
    require_admin(caller.user)
    under_way = _engine(context).recomposition(name)
    if under_way is None:
        get_node(context, name)
    return under_way


def _engine(context: Context) -> RecomposesNodes:
    if isinstance(context.engine, RecomposesNodes):
        return context.engine
    raise Conflict(
        f"Nodes of the engine {context.engine.name} have the GPUs that are in them.",
        "Only dynamic nodes of Slurm can change theirs.",
    )


def _check(gpus: Mapping[str, int]) -> None:
    if len(gpus) > _MOST_KINDS:
        raise invalid_field("gpus", f"at most {_MOST_KINDS} types, these are {len(gpus)}")
    for kind, count in gpus.items():
        if not _KIND.fullmatch(kind):
            raise invalid_field("gpus", f"{printable(kind)} is no type of GPU")
        if not 0 <= count <= _MOST_GPUS:
            raise invalid_field("gpus", f"of {kind} there can be 0 to {_MOST_GPUS}")
