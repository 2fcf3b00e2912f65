"""Slurm's nodes as ours: pure."""

from heliostat.engines.slurm.parse import SlurmNode
from heliostat.models import Device, Node, NodeState

_DOWN = ("down", "fail", "error", "unknown", "power_down", "powered_down", "no_respond", "future")
_DRAINED = ("drain", "maint", "reboot")


def node_of(node: SlurmNode) -> Node:
    """Slurm names no memory and no uuid of a GPU: the number on its node stands for it."""
    state = _state(node.state)
    kinds = [kind for kind, count in node.gpus for _ in range(count)]
    devices = tuple(
        Device(device_uuid(node.name, index), index, kind, kind, 0) for index, kind in enumerate(kinds)
    )
    reason = None if state is NodeState.UP else node.reason or f"Slurm says {node.state}"
    labels = dict.fromkeys(node.features, "")
    return Node(node.name, node.cpus, node.memory_mib, devices, state, reason, labels)


def device_uuid(node: str, index: int) -> str:
    return f"{node}:{index}"


def _state(said: str) -> NodeState:
    """`idle`, `mixed*` (does not answer), `idle+drain`, `drained`, `idle~` (asleep, wakes when needed)…"""
    if said.endswith("*") or any(word in said for word in _DOWN):
        return NodeState.DOWN
    return NodeState.DRAINED if any(word in said for word in _DRAINED) else NodeState.UP
