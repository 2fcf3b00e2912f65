"""Inventory of nodes: nodes reported by the engine, with the settings of admins and the GPUs that failed."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from heliostat.engines.contract import Engine, WatchesGpus
from heliostat.models import Device, Node, NodeState
from heliostat.models.gpu_errors import GpuError, describe_error
from heliostat.server_log import get_logger
from heliostat.store import nodes as stored
from heliostat.store.database import Store, StoreChanges, Transaction
from heliostat.store.gpus import GpuRecord, add_gpu_error, list_failed_gpus

log = get_logger()


@dataclass(frozen=True, slots=True)
class _Stored:
    settings: Mapping[str, stored.NodeAdminSettings]
    failed_gpus: Mapping[str, GpuRecord]


class NodeInventory:
    """Caches the merged nodes until the engine or an admin changes them."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self._lock = threading.Lock()
        self._cached: tuple[Node, ...] | None = None
        self._stored: _Stored | None = None
        self._callbacks: list[Callable[[], None]] = []
        store.on_commit(self._on_commit)
        engine.set_nodes_changed_callback(self.invalidate)
        if isinstance(engine, WatchesGpus):
            engine.set_gpu_error_callback(self._record_gpu_errors)

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
                self._stored = None
            self.invalidate()

    def _merged(self) -> tuple[Node, ...]:
        if self._stored is None:
            with self._store.read() as conn:
                self._stored = _Stored(stored.list_node_admin_settings(conn), list_failed_gpus(conn))
        settings, failed = self._stored.settings, self._stored.failed_gpus
        nodes = (_merge(node, settings.get(node.name)) for node in self._engine.nodes())
        return tuple(_without_failed_gpus(node, failed) for node in nodes)

    def _record_gpu_errors(self, errors: Sequence[GpuError]) -> None:
        """From now on no plan uses the cards that they take out."""
        node_of_card = {device.card: node.name for node in self._engine.nodes() for device in node.devices}

        def change(tx: Transaction) -> list[GpuError]:
            return [error for error in errors if add_gpu_error(tx, node_of_card.get(error.card, ""), error)]

        for error in self._store.write(change):
            node = node_of_card.get(error.card, "")
            log.warning(
                "gpu_failed", node=node, gpu=error.number, uuid=error.card, cause=describe_error(error.kind)
            )


def _without_failed_gpus(node: Node, failed: Mapping[str, GpuRecord]) -> Node:
    """They stay listed, with their problem, unless the driver reports another one now."""
    if not any(device.card in failed for device in node.devices):
        return node
    return replace(node, devices=tuple(_with_failure(device, node.name, failed) for device in node.devices))


def _with_failure(device: Device, node: str, failed: Mapping[str, GpuRecord]) -> Device:
    record = failed.get(device.card)
    if record is None or record.failed_kind is None:
        return device
    device = replace(device, fault=record.failed_kind)
    if device.problem is not None:
        return device
    test = f"after a repair, an admin tests it with `helio node test-gpu {node} {device.index}`"
    return replace(device, problem=f"failed: {describe_error(record.failed_kind)}; {test}")


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
