"""The nodes as they may be used: what the engine sees, with what admins decided."""

import threading
from collections.abc import Callable
from dataclasses import replace

from heliostat.engines.contract import Engine
from heliostat.models import Node, NodeState
from heliostat.store import nodes as stored
from heliostat.store.database import Store, StoreChanges


class NodeInventory:
    """Keeps the merged picture until either side changes."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self._lock = threading.Lock()
        self._known: tuple[Node, ...] | None = None
        self._changed: list[Callable[[], None]] = []
        store.on_commit(self._on_commit)
        engine.set_nodes_changed_callback(self.invalidate)

    def on_change(self, changed: Callable[[], None]) -> None:
        self._changed.append(changed)

    def nodes(self) -> tuple[Node, ...]:
        """For decisions: as of the last change."""
        with self._lock:
            if self._known is None:
                self._known = self._look()
            return self._known

    def fresh_nodes(self) -> tuple[Node, ...]:
        """For people: with fresh readings."""
        return self._look()

    def invalidate(self) -> None:
        with self._lock:
            self._known = None
        for changed in self._changed:
            changed()

    def _on_commit(self, changes: StoreChanges) -> None:
        if changes.nodes_changed:
            self.invalidate()

    def _look(self) -> tuple[Node, ...]:
        with self._store.read() as conn:
            decided = stored.list_node_admin_settings(conn)
        return tuple(_merged(node, decided.get(node.name)) for node in self._engine.nodes())


def _merged(node: Node, decision: stored.NodeAdminSettings | None) -> Node:
    if decision is None:
        return node
    drained = decision.state is not NodeState.UP and node.state is not NodeState.DOWN
    return replace(
        node,
        state=decision.state if drained else node.state,
        reason=decision.reason if drained else node.reason,
        labels={**node.labels, **decision.labels},
        data_class=decision.data_class,
        min_data_class=decision.min_data_class,
        splits_devices=decision.splits_devices,
    )
