"""Records the use and the peak temperature of each card, once a minute."""

import time
from collections.abc import Callable, Iterable
from datetime import datetime

from heliostat.controller.background_loop import BackgroundLoop
from heliostat.controller.controller import Controller
from heliostat.controller.node_inventory import NodeInventory
from heliostat.models import Job, Node
from heliostat.store.database import Store
from heliostat.store.gpus import GpuUse, add_gpu_use

_SECONDS = 60.0


class GpuHistoryRecorder:
    def __init__(
        self, store: Store, node_inventory: NodeInventory, controller: Controller, now: Callable[[], datetime]
    ) -> None:
        self._store, self._node_inventory, self._controller, self._now = store, node_inventory, controller, now
        self._before = time.monotonic()
        self._loop = BackgroundLoop("gpu-history", self._record, _SECONDS, failure="gpu_history_not_recorded")

    def start(self) -> None:
        self._loop.start_after_interval()

    def close(self) -> None:
        self._loop.close()

    def _record(self) -> None:
        before, self._before = self._before, time.monotonic()
        active, _ = self._controller.active_jobs_and_pending_count()
        seconds = min(self._before - before, 2 * _SECONDS)  # more: the machine was suspended
        used = list(list_gpu_use(self._node_inventory.fresh_nodes(), active, seconds))
        if used:
            now = self._now()
            self._store.write(lambda tx: add_gpu_use(tx, used, now))


def list_gpu_use(nodes: Iterable[Node], active: Iterable[Job], seconds: float) -> Iterable[GpuUse]:
    """The use of each card in the last seconds. A card is used if a job holds it, or one of its slices."""
    held = {uuid for job in active for place in job.task_placements for uuid in place.devices}
    for node in nodes:
        cards = {device.card: device for device in node.devices if device.type != "unknown"}
        used = {device.card for device in node.devices if device.uuid in held}
        for card, device in cards.items():
            yield GpuUse(card, node.name, str(device.index), seconds * (card in used), device.temperature)
