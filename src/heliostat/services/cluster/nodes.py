"""Verbs on nodes; for admins also other GPUs for a node while the cluster runs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from heliostat.doctor import check_installation
from heliostat.engines.contract import DrainsNodes, Finding, RecomposesNodes
from heliostat.errors import Conflict, NotFound, invalid_field, safe_repr
from heliostat.models import Caller, Node, NodeState, Recomposition, User
from heliostat.services.accounts.data_classes import MAX_DATA_CLASS, node_data_class_warning
from heliostat.services.accounts.slurm_sync import check_slurm_accounts, probe_nodes
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin, write_as_caller
from heliostat.store import accounts
from heliostat.store.database import Transaction
from heliostat.store.nodes import NodeAdminSettings, find_node_admin_settings, set_node_admin_settings

MAX_LABELS = 32
_LONGEST_REASON = 128
_LABEL = re.compile(r"[a-z0-9._-]{1,63}")
_LABEL_RULE = "must be 1 to 63 of a-z 0-9 . _ -"

_KIND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_MOST_GPUS = 64
_MOST_KINDS = 8


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What to set of a node; None leaves it. A label of None is taken away."""

    labels: Mapping[str, str | None] = field(default_factory=dict)
    data_class: int | None = None
    min_data_class: int | None = None
    splits_devices: bool | None = None


def drain_node(context: Context, caller: Caller, name: str, reason: str) -> Node:
    """Start nothing new on it; what runs there goes on."""
    check_drain_reason(reason)
    return _set_state(context, caller, name, NodeState.DRAINED, reason)


def check_drain_reason(reason: str) -> None:
    """One line that everybody can read."""
    if not reason.strip():
        raise invalid_field("reason", "say why, so that everybody knows")
    if len(reason) > _LONGEST_REASON or not reason.isprintable():
        raise invalid_field("reason", f"must be one line of at most {_LONGEST_REASON} characters")


def resume_node(context: Context, caller: Caller, name: str) -> Node:
    return _set_state(context, caller, name, NodeState.UP, None)


def update_node(context: Context, caller: Caller, name: str, wish: NodeChange) -> tuple[Node, str | None]:
    """Set labels, data classes and whether GPUs may be shared, all of it or nothing; and what that means there.

    Running jobs go on whatever is set.
    """
    require_admin(caller.user)
    node = get_node(context, name)
    _check_wish(wish)

    def change(tx: Transaction, actor: User) -> None:
        require_admin(actor)
        before = _decided(tx, node)
        after = _with(before, wish, node)
        if after != before:
            set_node_admin_settings(tx, name, after)
            accounts.add_audit_entry(tx, caller, "node.set", f"node {name}", _told(before, after), context.now())

    write_as_caller(context, caller, change)
    node = get_node(context, name)
    concerns_data = wish.data_class is not None or wish.min_data_class is not None
    return node, node_data_class_warning(context, node) if concerns_data else None


def get_node(context: Context, name: str) -> Node:
    for node in context.node_inventory.fresh_nodes():
        if node.name == name:
            return node
    names = ", ".join(node.name for node in context.node_inventory.nodes()[:50])
    raise NotFound(f"There is no node {name!r}.", f"Nodes: {names}.")


def diagnose_installation(context: Context, caller: Caller, *, probe: bool = False) -> list[Finding]:
    """What is wrong with it and what to do; paths and people of the machine are for admins.

    With `probe` a tiny job looks from the nodes too, where the engine has others than this machine.
    """
    require_admin(caller.user)
    if probe:
        probe_nodes(context)
    return [
        *check_installation(context.settings, nodes=context.node_inventory.fresh_nodes()),
        *check_slurm_accounts(context),
    ]


def _set_state(context: Context, caller: Caller, name: str, state: NodeState, reason: str | None) -> Node:
    require_admin(caller.user)
    node = get_node(context, name)
    action = "node.drain" if state is NodeState.DRAINED else "node.resume"

    def change(tx: Transaction, actor: User) -> None:
        require_admin(actor)
        if not isinstance(context.engine, DrainsNodes):
            set_node_admin_settings(tx, name, replace(_decided(tx, node), state=state, reason=reason))
        accounts.add_audit_entry(tx, caller, action, f"node {name}", {"reason": reason}, context.now())

    if isinstance(context.engine, DrainsNodes):
        _tell_engine(context.engine, name, reason if state is NodeState.DRAINED else None)
    write_as_caller(context, caller, change)
    return get_node(context, name)


def _tell_engine(engine: DrainsNodes, name: str, reason: str | None) -> None:
    """It keeps that by itself, for others than us too."""
    if reason is None:
        engine.resume(name)
    else:
        engine.drain(name, reason)


def _decided(tx: Transaction, node: Node) -> NodeAdminSettings:
    """What holds so far; before the first decision, what the node says of itself."""
    own = NodeAdminSettings(
        data_class=node.data_class, min_data_class=node.min_data_class, splits_devices=node.splits_devices
    )
    return find_node_admin_settings(tx.conn, node.name) or own


def _check_wish(wish: NodeChange) -> None:
    for name, value in wish.labels.items():
        if not _LABEL.fullmatch(name):
            raise invalid_field("labels", f"{safe_repr(name)} {_LABEL_RULE}")
        if value and not _LABEL.fullmatch(value):
            raise invalid_field("labels", f"the value {safe_repr(value)} of {name} {_LABEL_RULE}")
    for field_name in ("data_class", "min_data_class"):
        if not 0 <= (getattr(wish, field_name) or 0) <= MAX_DATA_CLASS:
            raise invalid_field(field_name, f"must be between 0 (open) and {MAX_DATA_CLASS} (secret)")


def _with(before: NodeAdminSettings, wish: NodeChange, node: Node) -> NodeAdminSettings:
    after = replace(
        before,
        labels=_labels(before, wish, node),
        data_class=before.data_class if wish.data_class is None else wish.data_class,
        min_data_class=before.min_data_class if wish.min_data_class is None else wish.min_data_class,
        splits_devices=before.splits_devices if wish.splits_devices is None else wish.splits_devices,
    )
    if after.min_data_class > after.data_class:
        raise invalid_field(
            "min_data_class",
            f"is {after.min_data_class}, but the node is cleared for {after.data_class}, so nothing could run",
        )
    return after


def _labels(before: NodeAdminSettings, wish: NodeChange, node: Node) -> dict[str, str]:
    own = node.labels.keys() - before.labels.keys()
    gone = {name for name, value in wish.labels.items() if value is None}
    if kept := sorted(gone & own):
        raise invalid_field(
            "labels", f"{kept[0]} is what the node says of itself; it can be changed, not taken away"
        )
    given = {name: value for name, value in wish.labels.items() if value is not None}
    after = {name: value for name, value in {**before.labels, **given}.items() if name not in gone}
    if len(after) > MAX_LABELS:
        raise invalid_field("labels", f"a node may have {MAX_LABELS}, these are {len(after)}")
    return after


def _told(before: NodeAdminSettings, after: NodeAdminSettings) -> dict[str, object]:
    """What was before and is now, of what differs."""
    names = ("labels", "data_class", "min_data_class", "splits_devices")
    pairs = {name: [getattr(before, name), getattr(after, name)] for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def recompose_node(
    context: Context, caller: Caller, name: str, gpus: Mapping[str, int], *, dry_run: bool = False
) -> Recomposition:
    """Begin to give a node these GPUs, instead of those it has; running jobs end first. Returns at once."""
    require_admin(caller.user)
    engine = _engine(context)
    if engine.recomposition_status(name) is None:
        get_node(context, name)
    _check(gpus)
    wish = engine.recompose(name, gpus, dry_run=dry_run)
    if dry_run:
        return wish

    def note(tx: Transaction, actor: User) -> None:
        require_admin(actor)
        accounts.add_audit_entry(tx, caller, "node.recompose", f"node {name}", {"gpus": dict(gpus)}, context.now())

    write_as_caller(context, caller, note)
    return wish


def get_recomposition(context: Context, caller: Caller, name: str) -> Recomposition | None:
    """How far it is; None: nothing is being changed there."""
    require_admin(caller.user)
    under_way = _engine(context).recomposition_status(name)
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
            raise invalid_field("gpus", f"{safe_repr(kind)} is no type of GPU")
        if not 0 <= count <= _MOST_GPUS:
            raise invalid_field("gpus", f"of {kind} there can be 0 to {_MOST_GPUS}")
