"""Verbs on nodes."""

from heliostat.doctor import Finding, examine
from heliostat.errors import NotFound
from heliostat.models import Caller, Node, NodeState
from heliostat.services.context import Context
from heliostat.services.rights import require_admin
from heliostat.store import people
from heliostat.store.database import Transaction
from heliostat.store.nodes import NodeDecision, decide_node


def drain_node(context: Context, caller: Caller, name: str, reason: str) -> Node:
    """Start nothing new on it; what runs there goes on."""
    return _decide(context, caller, name, NodeDecision(NodeState.DRAINED, reason))


def resume_node(context: Context, caller: Caller, name: str) -> Node:
    return _decide(context, caller, name, NodeDecision(NodeState.UP, None))


def get_node(context: Context, name: str) -> Node:
    for node in context.fleet.nodes_now():
        if node.name == name:
            return node
    names = ", ".join(node.name for node in context.fleet.nodes())
    raise NotFound(f"There is no node {name!r}.", f"Nodes: {names}.")


def examine_installation(context: Context, caller: Caller) -> list[Finding]:
    """What is wrong with it and what to do; paths and people of the machine are for admins."""
    require_admin(caller.user)
    return examine(context.settings, nodes=context.fleet.nodes_now())


def _decide(context: Context, caller: Caller, name: str, decision: NodeDecision) -> Node:
    require_admin(caller.user)
    get_node(context, name)
    action = "node.drain" if decision.state is NodeState.DRAINED else "node.resume"

    def change(tx: Transaction) -> None:
        decide_node(tx, name, decision)
        people.add_audit(tx, caller, action, f"node {name}", {"reason": decision.reason}, context.now())

    context.store.write(change)
    return get_node(context, name)
