"""A simulated node: its state, and the attempts that hold its devices."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from heliostat.engines.simulated.cluster import device_under_load
from heliostat.models import Attempt, AttemptId, Device, Node, NodeState

DEVICE_REFRESH_SECONDS = 5  # device metrics change in this interval
_WHOLE = 100  # devices are allocated in hundredths


class SimulatedNode:
    def __init__(self, node: Node, speed: float) -> None:
        self.node, self._speed = node, speed
        self.devices = {device.uuid: device for device in node.devices}  # in idle state
        self._holders: dict[str, dict[AttemptId, tuple[Attempt, datetime]]] = {}
        self._taken: Counter[str] = Counter()
        self._cached_node: Node | None = None
        self._cached_tick = 0

    def set_state(self, state: NodeState, reason: str | None) -> None:
        self.node = replace(self.node, state=state, reason=reason)
        self._cached_node = None

    def find_allocation_problem(self, attempt: Attempt) -> str | None:
        """Why its devices cannot be allocated on this node."""
        for uuid, amount in self._requested_amounts(attempt):
            if uuid not in self.devices:
                return f"Node {self.node.name} has no device {uuid}."
            if self._taken[uuid] + amount > _WHOLE:
                others = ", ".join(self._holders.get(uuid, {})) or "its other tasks"
                return f"Device {uuid} is in use by {others}."
        return None

    def allocate(self, attempt: Attempt, started_at: datetime) -> None:
        for uuid, amount in self._requested_amounts(attempt):
            self._taken[uuid] += amount
            self._holders.setdefault(uuid, {})[attempt.id] = attempt, started_at
        self._cached_node = None

    def release(self, attempt: Attempt) -> None:
        for uuid, amount in self._requested_amounts(attempt):
            self._taken[uuid] -= amount
            del self._holders[uuid][attempt.id]
            if not self._holders[uuid]:
                del self._holders[uuid]
        self._cached_node = None

    def current_node(self, now: datetime) -> Node:
        if not self._holders:
            return self.node
        tick = int(now.timestamp()) // DEVICE_REFRESH_SECONDS
        if self._cached_node is None or self._cached_tick != tick:
            self._cached_node = replace(self.node, devices=tuple(self._device(d, now) for d in self.node.devices))
            self._cached_tick = tick
        return self._cached_node

    def _requested_amounts(self, attempt: Attempt) -> Iterator[tuple[str, int]]:
        """Hundredths of each device of this node that all its tasks use together."""
        gpus = attempt.job.resources.gpus
        fraction = round(gpus * _WHOLE) if 0 < gpus < 1 else _WHOLE
        places = [place for place in attempt.task_placements if place.node == self.node.name]
        tasks = Counter(uuid for place in places for uuid in place.devices)
        yield from ((uuid, count * fraction) for uuid, count in tasks.items())

    def _device(self, device: Device, now: datetime) -> Device:
        holders = self._holders.get(device.uuid)
        if not holders:
            return device
        attempt, started_at = next(iter(holders.values()))
        return device_under_load(device, attempt, max(0.0, (now - started_at).total_seconds()) * self._speed)
