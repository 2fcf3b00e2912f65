"""What admins decided about nodes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from heliostat.models import NodeState
from heliostat.store import schema
from heliostat.store.database import Transaction

_nodes = schema.nodes


@dataclass(frozen=True, slots=True)
class NodeDecision:
    """All of it holds; only `labels` come on top of those the node has by itself."""

    state: NodeState = NodeState.UP
    reason: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    data_class: int = 0
    min_data_class: int = 0
    splits_devices: bool = False


def node_decisions(conn: Connection) -> dict[str, NodeDecision]:
    return {row.name: _decision(row) for row in conn.execute(select(_nodes))}


def find_decision(conn: Connection, name: str) -> NodeDecision | None:
    row = conn.execute(select(_nodes).where(_nodes.c.name == name)).first()
    return None if row is None else _decision(row)


def decide_node(tx: Transaction, name: str, decision: NodeDecision) -> None:
    tx.conn.execute(delete(_nodes).where(_nodes.c.name == name))
    tx.conn.execute(
        insert(_nodes).values(
            name=name,
            state=decision.state.value,
            reason=decision.reason,
            labels=json.dumps(dict(decision.labels)),
            data_class=decision.data_class,
            min_data_class=decision.min_data_class,
            splits_devices=decision.splits_devices,
        )
    )
    tx.changes.nodes = True


def _decision(row: Row[Any]) -> NodeDecision:
    return NodeDecision(
        state=NodeState(row.state),
        reason=row.reason,
        labels=json.loads(row.labels),
        data_class=row.data_class,
        min_data_class=row.min_data_class,
        splits_devices=bool(row.splits_devices),
    )
