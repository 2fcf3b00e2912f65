"""Reads what the attempts of this machine, and the machine itself, use.

Files are opened anew at each look: to keep them open would save a hundredth of a millisecond each, and descriptors
are what a busy server runs out of first.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from heliostat.engines.local.devices import Devices
from heliostat.engines.local.endings import Running
from heliostat.engines.local.ungrouped import UngroupedProcesses
from heliostat.engines.local.usage import Usage, busy_cpu_seconds, memory_used_mib, usage_of_trees
from heliostat.models import AttemptId, Device, DeviceReading, Reading, Readings

_YOUNG_SECONDS = 120.0  # for whom what it used since its start says what it uses now
_SHORTEST_SECONDS = 0.2  # between two looks that say anything


@dataclass(frozen=True, slots=True)
class _Mark:
    """How much cpu something had used, and when, by the monotonic clock."""

    at: float
    cpu_seconds: float


class UsageReader:
    """Remembers the last look, as what counts is the difference. Belongs to one thread."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._marks: dict[AttemptId, _Mark] = {}
        self._machine: _Mark | None = None

    def read(self, node: str, running: Sequence[Running]) -> Readings:
        devices = {device.uuid: device for device in self._devices.now()}
        ungrouped = {one.attempt.id: one.claim.pid for one in running if isinstance(one.group, UngroupedProcesses)}
        trees = usage_of_trees(ungrouped) if ungrouped else {}
        holders = Counter(uuid for one in running for uuid in one.attempt.devices)
        marks, self._marks = self._marks, {}
        attempts = {}
        for one in running:
            used = trees.get(one.attempt.id) or _usage(one)
            cpus = self._cpus(one, used.cpu_seconds, marks.get(one.attempt.id))
            its_devices = tuple(
                self._device(one.attempt.id, devices.get(uuid), holders[uuid]) for uuid in one.attempt.devices
            )
            attempts[one.attempt.id] = Reading(cpus, used.memory_mib, its_devices)
        return Readings(attempts, {node: self._read_machine(list(devices.values()))})

    def _cpus(self, one: Running, cpu_seconds: float | None, before: _Mark | None) -> float | None:
        if cpu_seconds is None:
            return None
        now = _Mark(time.monotonic(), cpu_seconds)
        is_too_soon = before is not None and now.at - before.at < _SHORTEST_SECONDS
        self._marks[one.attempt.id] = before if before is not None and is_too_soon else now
        return _cores_between(before, now) if before else _cores_since_start(one, cpu_seconds)

    def _read_machine(self, devices: Sequence[Device]) -> Reading:
        before, self._machine = self._machine, _Mark(time.monotonic(), busy_cpu_seconds())
        cpus = None if before is None else _cores_between(before, self._machine)
        return Reading(cpus, memory_used_mib(), tuple(self._device(None, device, 1) for device in devices))

    def _device(self, attempt_id: AttemptId | None, device: Device | None, holders: int) -> DeviceReading:
        """Of a shared device the utilisation is that of all, the memory that of this attempt."""
        if device is None or not self._devices.are_real or device.utilisation is None:
            return DeviceReading()  # made-up ones do nothing, and nobody knows what a sick one does
        if attempt_id is None or holders == 1:
            return DeviceReading(device.utilisation, device.memory_used_mib)
        return DeviceReading(device.utilisation, self._devices.memory_used_by(attempt_id, device))


def _usage(one: Running) -> Usage:
    try:
        return one.group.usage()
    except OSError:  # no descriptor left, say
        return Usage()


def _cores_between(before: _Mark, now: _Mark) -> float | None:
    """Never below zero: what a child used is missing for a moment when nobody waits for its end."""
    seconds = now.at - before.at
    return max(0.0, (now.cpu_seconds - before.cpu_seconds) / seconds) if seconds >= _SHORTEST_SECONDS else None


def _cores_since_start(one: Running, cpu_seconds: float) -> float | None:
    seconds = time.monotonic() - one.began_at
    return cpu_seconds / seconds if _SHORTEST_SECONDS <= seconds <= _YOUNG_SECONDS else None
