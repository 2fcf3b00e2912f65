"""One made-up machine: who holds its devices, and how it looks."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from heliostat.engines.simulated.cluster import device_under_load
from heliostat.models import Attempt, AttemptId, Device, Node, NodeState

DEVICE_REFRESH_SECONDS = 5  # devices look the same for so long
_WHOLE = 100  # a device is given out in hundredths


class SimulatedNode:
    """A node, who holds which part of its devices since when, and how it was last seen."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.devices = {device.uuid: device for device in node.devices}  # as they are when nobody uses them
        self._holders: dict[str, dict[AttemptId, tuple[Attempt, datetime]]] = {}
        self._taken: Counter[str] = Counter()
        self._seen: Node | None = None
        self._seen_tick = 0

    def set_state(self, state: NodeState, reason: str | None) -> None:
        self.node = replace(self.node, state=state, reason=reason)
        self._seen = None

    def find_allocation_problem(self, attempt: Attempt) -> str | None:
        """What keeps it from having its devices here."""
        for uuid, wanted in self._sum_of(attempt):
            if uuid not in self.devices:
                return f"Node {self.node.name} has no device {uuid}."
            if self._taken[uuid] + wanted > _WHOLE:
                others = ", ".join(self._holders.get(uuid, {})) or "its other tasks"
                return f"Device {uuid} is held by {others}."
        return None

    def allocate(self, attempt: Attempt, started_at: datetime) -> None:
        for uuid, wanted in self._sum_of(attempt):
            self._taken[uuid] += wanted
            self._holders.setdefault(uuid, {})[attempt.id] = attempt, started_at
        self._seen = None

    def release(self, attempt: Attempt) -> None:
        for uuid, wanted in self._sum_of(attempt):
            self._taken[uuid] -= wanted
            del self._holders[uuid][attempt.id]
            if not self._holders[uuid]:
                del self._holders[uuid]
        self._seen = None

    def current_node(self, now: datetime) -> Node:
        if not self._holders:
            return self.node
        tick = int(now.timestamp()) // DEVICE_REFRESH_SECONDS
        if self._seen is None or self._seen_tick != tick:
            self._seen = replace(self.node, devices=tuple(self._device(d, now) for d in self.node.devices))
            self._seen_tick = tick
        return self._seen

    def _sum_of(self, attempt: Attempt) -> Iterator[tuple[str, int]]:
        """How much of each device here all its tasks hold together."""
        gpus = attempt.job.resources.gpus
        part = round(gpus * _WHOLE) if 0 < gpus < 1 else _WHOLE
        places = [place for place in attempt.task_placements if place.node == self.node.name]
        tasks = Counter(uuid for place in places for uuid in place.devices)
        yield from ((uuid, count * part) for uuid, count in tasks.items())

    def _device(self, device: Device, now: datetime) -> Device:
        holders = self._holders.get(device.uuid)
        if not holders:
            return device
        attempt, started_at = next(iter(holders.values()))
        return device_under_load(device, attempt, max(0.0, (now - started_at).total_seconds()))
