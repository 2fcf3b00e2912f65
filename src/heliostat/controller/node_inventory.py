"""Inventory of nodes: nodes reported by the engine, with the settings of admins."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from heliostat.engines.contract import Engine
from heliostat.models import Node, NodeState
from heliostat.store import nodes as stored
from heliostat.store.database import Store, StoreChanges

_Settings = Mapping[str, stored.NodeAdminSettings]


class NodeInventory:
    """Caches the merged nodes until the engine or an admin changes them."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self._lock = threading.Lock()
        self._cached: tuple[Node, ...] | None = None
        self._settings: _Settings | None = None
        self._callbacks: list[Callable[[], None]] = []
        store.on_commit(self._on_commit)
        engine.set_nodes_changed_callback(self.invalidate)

    def on_change(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def nodes(self) -> tuple[Node, ...]:
        """For scheduling: as of the last change."""
        with self._lock:
            if self._cached is None:
                self._cached = self._merged()
            return self._cached

    def fresh_nodes(self) -> tuple[Node, ...]:
        """For users: with current usage values."""
        with self._lock:
            return self._merged()

    def invalidate(self) -> None:
        with self._lock:
            self._cached = None
        for callback in self._callbacks:
            callback()

    def _on_commit(self, changes: StoreChanges) -> None:
        if changes.nodes_changed:
            with self._lock:
                self._settings = None
            self.invalidate()

    def _merged(self) -> tuple[Node, ...]:
        if self._settings is None:
            with self._store.read() as conn:
                self._settings = stored.list_node_admin_settings(conn)
        return tuple(_merge(node, self._settings.get(node.name)) for node in self._engine.nodes())


def _merge(node: Node, settings: stored.NodeAdminSettings | None) -> Node:
    if settings is None:
        return node
    drained = settings.state is not NodeState.UP and node.state is not NodeState.DOWN
    return replace(
        node,
        state=settings.state if drained else node.state,
        reason=settings.reason if drained else node.reason,
        labels={**node.labels, **settings.labels},
        data_class=settings.data_class,
        min_data_class=settings.min_data_class,
        splits_devices=settings.splits_devices,
    )
