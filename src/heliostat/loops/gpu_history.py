"""Records the use and the peak temperature of each card once a minute, and tells admins which cards failed."""

import time
from collections.abc import Iterable

from heliostat.controller.background_loop import BackgroundLoop
from heliostat.models import Job, Node
from heliostat.services.alerts import add_alerts
from heliostat.services.cluster.gpus import gpu_alert
from heliostat.services.context import Context
from heliostat.store.database import Transaction
from heliostat.store.gpus import GpuUse, add_gpu_use, find_gpu

_SECONDS = 60.0


class GpuHistoryRecorder:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._before = time.monotonic()
        self._loop = BackgroundLoop("gpu-history", self._record, _SECONDS, failure="gpu_history_not_recorded")

    def start(self) -> None:
        self._loop.start_after_interval()

    def close(self) -> None:
        self._loop.close()

    def _record(self) -> None:
        before, self._before = self._before, time.monotonic()
        active, _ = self._context.controller.active_jobs_and_pending_count()
        seconds = min(self._before - before, 2 * _SECONDS)  # more: the machine was suspended
        used = list(list_gpu_use(self._context.node_inventory.fresh_nodes(), active, seconds))
        if used:
            self._context.store.write(lambda tx: record_gpu_use(tx, self._context, used))


def record_gpu_use(tx: Transaction, context: Context, used: Iterable[GpuUse]) -> None:
    """With an alert for each card that failed, which is sent once, and its end."""
    used, now = list(used), context.now()
    add_gpu_use(tx, used, now)
    records = [record for use in used if (record := find_gpu(tx.conn, use.uuid))]
    add_alerts(tx, context, [gpu_alert(record, now) for record in records])


def list_gpu_use(nodes: Iterable[Node], active: Iterable[Job], seconds: float) -> Iterable[GpuUse]:
    """The use of each card in the last seconds. A card is used if a job holds it, or one of its slices."""
    held = {uuid for job in active for place in job.task_placements for uuid in place.devices}
    for node in nodes:
        cards = {device.card: device for device in node.devices if device.type != "unknown"}
        used = {device.card for device in node.devices if device.uuid in held}
        for card, device in cards.items():
            yield GpuUse(card, node.name, str(device.index), seconds * (card in used), device.temperature)
