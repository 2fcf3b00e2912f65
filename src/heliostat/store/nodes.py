"""What admins decided about nodes."""

from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from heliostat.models import NodeState
from heliostat.store import schema
from heliostat.store.database import Transaction


@dataclass(frozen=True, slots=True)
class NodeDecision:
    state: NodeState
    reason: str | None


def node_decisions(conn: Connection) -> dict[str, NodeDecision]:
    rows = conn.execute(select(schema.nodes))
    return {row.name: NodeDecision(NodeState(row.state), row.reason) for row in rows}


def decide_node(tx: Transaction, name: str, decision: NodeDecision) -> None:
    tx.conn.execute(delete(schema.nodes).where(schema.nodes.c.name == name))
    tx.conn.execute(insert(schema.nodes).values(name=name, state=decision.state.value, reason=decision.reason))
    tx.changes.nodes = True
