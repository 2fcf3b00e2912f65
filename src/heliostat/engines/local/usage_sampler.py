"""Reads what the attempts of this machine, and the machine itself, use.

Files are opened anew at each look: to keep them open would save a hundredth of a millisecond each, and descriptors
are what a busy server runs out of first.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from heliostat.engines.local.cgroup_fallback import FallbackCgroup
from heliostat.engines.local.exit_status import RunningAttempt
from heliostat.engines.local.gpu_monitor import GpuMonitor
from heliostat.engines.local.process_usage import (
    ProcessUsage,
    host_cpu_seconds,
    host_memory_used_mib,
    read_usage_of_trees,
)
from heliostat.models import AttemptId, Device, DeviceSample, SampleBatch, UsageSample

_YOUNG_SECONDS = 120.0  # for whom what it used since its start says what it uses now
_SHORTEST_SECONDS = 0.2  # between two looks that say anything


@dataclass(frozen=True, slots=True)
class _Mark:
    """How much cpu something had used, and when, by the monotonic clock."""

    at: float
    cpu_seconds: float


class UsageSampler:
    """Remembers the last look, as what counts is the difference. Belongs to one thread."""

    def __init__(self, devices: GpuMonitor) -> None:
        self._devices = devices
        self._marks: dict[AttemptId, _Mark] = {}
        self._machine: _Mark | None = None

    def read(self, node: str, running: Sequence[RunningAttempt]) -> SampleBatch:
        devices = {device.uuid: device for device in self._devices.current_devices()}
        ungrouped = {one.attempt.id: one.claim.pid for one in running if isinstance(one.group, FallbackCgroup)}
        trees = read_usage_of_trees(ungrouped) if ungrouped else {}
        holders = Counter(uuid for one in running for uuid in one.attempt.devices)
        marks, self._marks = self._marks, {}
        attempts = {}
        for one in running:
            used = trees.get(one.attempt.id) or _usage(one)
            cpus = self._cpus(one, used.cpu_seconds, marks.get(one.attempt.id))
            its_devices = tuple(
                self._device(one.attempt.id, devices.get(uuid), holders[uuid]) for uuid in one.attempt.devices
            )
            attempts[one.attempt.id] = UsageSample(cpus, used.memory_mib, its_devices)
        return SampleBatch(attempts, {node: self._read_machine(list(devices.values()))})

    def _cpus(self, one: RunningAttempt, cpu_seconds: float | None, before: _Mark | None) -> float | None:
        if cpu_seconds is None:
            return None
        now = _Mark(time.monotonic(), cpu_seconds)
        is_too_soon = before is not None and now.at - before.at < _SHORTEST_SECONDS
        self._marks[one.attempt.id] = before if before is not None and is_too_soon else now
        return _cores_between(before, now) if before else _cores_since_start(one, cpu_seconds)

    def _read_machine(self, devices: Sequence[Device]) -> UsageSample:
        before, self._machine = self._machine, _Mark(time.monotonic(), host_cpu_seconds())
        cpus = None if before is None else _cores_between(before, self._machine)
        return UsageSample(
            cpus, host_memory_used_mib(), tuple(self._device(None, device, 1) for device in devices)
        )

    def _device(self, attempt_id: AttemptId | None, device: Device | None, holders: int) -> DeviceSample:
        """Of a shared device the utilisation is that of all, the memory that of this attempt."""
        if device is None or not self._devices.are_real or device.utilisation is None:
            return DeviceSample()  # made-up ones do nothing, and nobody knows what a sick one does
        if attempt_id is None or holders == 1:
            return DeviceSample(device.utilisation, device.memory_used_mib)
        return DeviceSample(device.utilisation, self._devices.memory_used_by(attempt_id, device))


def _usage(one: RunningAttempt) -> ProcessUsage:
    try:
        return one.group.usage()
    except OSError:  # no descriptor left, say
        return ProcessUsage()


def _cores_between(before: _Mark, now: _Mark) -> float | None:
    """Never below zero: what a child used is missing for a moment when nobody waits for its end."""
    seconds = now.at - before.at
    return max(0.0, (now.cpu_seconds - before.cpu_seconds) / seconds) if seconds >= _SHORTEST_SECONDS else None


def _cores_since_start(one: RunningAttempt, cpu_seconds: float) -> float | None:
    seconds = time.monotonic() - one.started_monotonic
    return cpu_seconds / seconds if _SHORTEST_SECONDS <= seconds <= _YOUNG_SECONDS else None
