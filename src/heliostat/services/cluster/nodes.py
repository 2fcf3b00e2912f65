"""Node commands: drain, resume, labels, data classes, diagnosis, and recomposition of a node's GPUs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from heliostat.doctor import check_installation
from heliostat.engines.contract import DrainsNodes, Finding, RecomposesNodes
from heliostat.errors import Conflict, NotFound, invalid_field, safe_repr
from heliostat.models import Caller, Node, NodeState, Recomposition, User
from heliostat.services.accounts.data_classes import MAX_DATA_CLASS, node_data_class_warning
from heliostat.services.accounts.slurm_sync import check_slurm_accounts, probe_nodes
from heliostat.services.backups.findings import check_backups
from heliostat.services.cluster.outage import check_outage
from heliostat.services.context import Context
from heliostat.services.pause import check_left_jobs
from heliostat.services.permissions import require_admin, write_as_caller
from heliostat.store import accounts
from heliostat.store.database import Transaction
from heliostat.store.nodes import NodeAdminSettings, find_node_admin_settings, set_node_admin_settings

MAX_LABELS = 32
_MAX_REASON_LENGTH = 128
_LABEL = re.compile(r"[a-z0-9._-]{1,63}")
_LABEL_RULE = "must be 1 to 63 of a-z 0-9 . _ -"

_GPU_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_MAX_GPUS = 64
_MAX_GPU_TYPES = 8


@dataclass(frozen=True, slots=True)
class NodeChange:
    """Changes to a node; None: unchanged. A label of None is removed."""

    labels: Mapping[str, str | None] = field(default_factory=dict)
    data_class: int | None = None
    min_data_class: int | None = None
    splits_devices: bool | None = None


def drain_node(context: Context, caller: Caller, name: str, reason: str) -> Node:
    """Start no new jobs on the node; running jobs continue."""
    check_drain_reason(reason)
    return _set_state(context, caller, name, NodeState.DRAINED, reason)


def check_drain_reason(reason: str) -> None:
    """One printable line. Raises Invalid."""
    if not reason.strip():
        raise invalid_field("reason", "must not be empty: all users see it")
    if len(reason) > _MAX_REASON_LENGTH or not reason.isprintable():
        raise invalid_field("reason", f"must be one line of at most {_MAX_REASON_LENGTH} characters")


def resume_node(context: Context, caller: Caller, name: str) -> Node:
    return _set_state(context, caller, name, NodeState.UP, None)


def update_node(context: Context, caller: Caller, name: str, changes: NodeChange) -> tuple[Node, str | None]:
    """Set labels, data classes and GPU sharing in one transaction; with a warning about affected jobs.

    Running jobs continue.
    """
    require_admin(caller.user)
    node = get_node(context, name)
    _check_change(changes)

    def change(tx: Transaction, actor: User) -> None:
        require_admin(actor)
        before = _current_settings(tx, node)
        after = _apply_change(before, changes, node)
        if after != before:
            set_node_admin_settings(tx, name, after)
            accounts.add_audit_entry(
                tx, caller, "node.set", f"node {name}", _audit_details(before, after), context.now()
            )

    write_as_caller(context, caller, change)
    node = get_node(context, name)
    concerns_data = changes.data_class is not None or changes.min_data_class is not None
    return node, node_data_class_warning(context, node) if concerns_data else None


def get_node(context: Context, name: str) -> Node:
    for node in context.node_inventory.fresh_nodes():
        if node.name == name:
            return node
    names = ", ".join(node.name for node in context.node_inventory.nodes()[:50])
    raise NotFound(f"There is no node {name!r}.", f"Nodes: {names}.")


def diagnose_installation(context: Context, caller: Caller, *, probe: bool = False) -> list[Finding]:
    """Problems of the installation and their fixes. For admins: it contains paths and user names.

    With `probe`, a small job also runs checks on the engine's nodes, if it has other nodes than this server.
    """
    require_admin(caller.user)
    if probe:
        probe_nodes(context)
    return [
        *check_installation(context.settings, nodes=context.node_inventory.fresh_nodes()),
        *check_outage(context),
        *check_left_jobs(context),
        *check_backups(context.settings),
        *check_slurm_accounts(context),
    ]


def _set_state(context: Context, caller: Caller, name: str, state: NodeState, reason: str | None) -> Node:
    require_admin(caller.user)
    node = get_node(context, name)
    action = "node.drain" if state is NodeState.DRAINED else "node.resume"

    def change(tx: Transaction, actor: User) -> None:
        require_admin(actor)
        if not isinstance(context.engine, DrainsNodes):
            set_node_admin_settings(tx, name, replace(_current_settings(tx, node), state=state, reason=reason))
        accounts.add_audit_entry(tx, caller, action, f"node {name}", {"reason": reason}, context.now())

    if isinstance(context.engine, DrainsNodes):
        _set_engine_state(context.engine, name, reason if state is NodeState.DRAINED else None)
    write_as_caller(context, caller, change)
    return get_node(context, name)


def _set_engine_state(engine: DrainsNodes, name: str, reason: str | None) -> None:
    """The engine stores the state itself, for foreign jobs too."""
    if reason is None:
        engine.resume(name)
    else:
        engine.drain(name, reason)


def _current_settings(tx: Transaction, node: Node) -> NodeAdminSettings:
    """The stored settings; if there are none, those that the node reports."""
    reported = NodeAdminSettings(
        data_class=node.data_class, min_data_class=node.min_data_class, splits_devices=node.splits_devices
    )
    return find_node_admin_settings(tx.conn, node.name) or reported


def _check_change(changes: NodeChange) -> None:
    for name, value in changes.labels.items():
        if not _LABEL.fullmatch(name):
            raise invalid_field("labels", f"{safe_repr(name)} {_LABEL_RULE}")
        if value and not _LABEL.fullmatch(value):
            raise invalid_field("labels", f"the value {safe_repr(value)} of {name} {_LABEL_RULE}")
    for field_name in ("data_class", "min_data_class"):
        if not 0 <= (getattr(changes, field_name) or 0) <= MAX_DATA_CLASS:
            raise invalid_field(field_name, f"must be between 0 (open) and {MAX_DATA_CLASS} (secret)")


def _apply_change(before: NodeAdminSettings, changes: NodeChange, node: Node) -> NodeAdminSettings:
    after = replace(
        before,
        labels=_labels(before, changes, node),
        data_class=before.data_class if changes.data_class is None else changes.data_class,
        min_data_class=before.min_data_class if changes.min_data_class is None else changes.min_data_class,
        splits_devices=before.splits_devices if changes.splits_devices is None else changes.splits_devices,
    )
    if after.min_data_class > after.data_class:
        raise invalid_field(
            "min_data_class",
            f"is {after.min_data_class}, but the node is cleared for {after.data_class}, so no job could run",
        )
    return after


def _labels(before: NodeAdminSettings, changes: NodeChange, node: Node) -> dict[str, str]:
    reported = node.labels.keys() - before.labels.keys()
    removed = {name for name, value in changes.labels.items() if value is None}
    if not_removable := sorted(removed & reported):
        raise invalid_field(
            "labels", f"{not_removable[0]} is reported by the node; it can be changed, not removed"
        )
    added = {name: value for name, value in changes.labels.items() if value is not None}
    after = {name: value for name, value in {**before.labels, **added}.items() if name not in removed}
    if len(after) > MAX_LABELS:
        raise invalid_field("labels", f"at most {MAX_LABELS} labels per node, got {len(after)}")
    return after


def _audit_details(before: NodeAdminSettings, after: NodeAdminSettings) -> dict[str, object]:
    """Old and new value of each changed field."""
    names = ("labels", "data_class", "min_data_class", "splits_devices")
    pairs = {name: [getattr(before, name), getattr(after, name)] for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def recompose_node(
    context: Context, caller: Caller, name: str, gpus: Mapping[str, int], *, dry_run: bool = False
) -> Recomposition:
    """Start to replace the GPUs of a node by these; running jobs end first. Does not wait for the result."""
    require_admin(caller.user)
    engine = _require_recomposing_engine(context)
    if engine.recomposition_status(name) is None:
        get_node(context, name)
    _check_gpus(gpus)
    recomposition = engine.recompose(name, gpus, dry_run=dry_run)
    if dry_run:
        return recomposition

    def add_audit_entry(tx: Transaction, actor: User) -> None:
        require_admin(actor)
        accounts.add_audit_entry(tx, caller, "node.recompose", f"node {name}", {"gpus": dict(gpus)}, context.now())

    write_as_caller(context, caller, add_audit_entry)
    return recomposition


def get_recomposition(context: Context, caller: Caller, name: str) -> Recomposition | None:
    """The progress; None: no recomposition of this node is in progress."""
    require_admin(caller.user)
    status = _require_recomposing_engine(context).recomposition_status(name)
    if status is None:
        get_node(context, name)
    return status


def _require_recomposing_engine(context: Context) -> RecomposesNodes:
    if isinstance(context.engine, RecomposesNodes):
        return context.engine
    raise Conflict(
        f"The engine {context.engine.name} cannot change the GPUs of a node.",
        "Only dynamic nodes of Slurm can.",
    )


def _check_gpus(gpus: Mapping[str, int]) -> None:
    if len(gpus) > _MAX_GPU_TYPES:
        raise invalid_field("gpus", f"at most {_MAX_GPU_TYPES} GPU types, got {len(gpus)}")
    for gpu_type, count in gpus.items():
        if not _GPU_TYPE.fullmatch(gpu_type):
            raise invalid_field("gpus", f"{safe_repr(gpu_type)} is not a GPU type")
        if not 0 <= count <= _MAX_GPUS:
            raise invalid_field("gpus", f"the number of {gpu_type} must be between 0 and {_MAX_GPUS}")
