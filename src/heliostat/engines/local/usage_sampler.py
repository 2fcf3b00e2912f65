"""Usage sampler: current CPU, memory and GPU usage of this machine and of the attempts on it.

Files are opened for each sample: keeping them open would save 10 microseconds each, but descriptors are the first
resource that a busy server runs out of.
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

_YOUNG_SECONDS = 120.0  # up to this age, the average since the start counts as the current usage
_MIN_INTERVAL_SECONDS = 0.2  # between two samples


@dataclass(frozen=True, slots=True)
class _CpuTime:
    """CPU time used up to a time on the monotonic clock."""

    at: float
    cpu_seconds: float


class UsageSampler:
    """Keeps the previous sample, since usage is the difference between two. For one thread."""

    def __init__(self, devices: GpuMonitor) -> None:
        self._devices = devices
        self._previous: dict[AttemptId, _CpuTime] = {}
        self._host: _CpuTime | None = None
        self._energy: dict[str, tuple[float, int]] = {}  # by device: when, and the energy counter
        self._power: dict[str, tuple[float | None, bool]] = {}  # by device: watts, and whether they are measured

    def read(self, node: str, running: Sequence[RunningAttempt]) -> SampleBatch:
        devices = {device.uuid: device for device in self._devices.current_devices()}
        self._power = {device.uuid: self._read_power(device) for device in devices.values()}
        no_cgroup = {item.attempt.id: item.claim.pid for item in running if isinstance(item.group, FallbackCgroup)}
        trees = read_usage_of_trees(no_cgroup) if no_cgroup else {}
        holders = Counter(uuid for item in running for uuid in item.attempt.devices)
        previous, self._previous = self._previous, {}
        attempts = {}
        for item in running:
            used = trees.get(item.attempt.id) or _usage(item)
            cpus = self._cpus(item, used.cpu_seconds, previous.get(item.attempt.id))
            its_devices = tuple(
                self._device(item.attempt.id, devices.get(uuid), holders[uuid]) for uuid in item.attempt.devices
            )
            attempts[item.attempt.id] = UsageSample(cpus, used.memory_mib, its_devices)
        return SampleBatch(attempts, {node: self._read_host(list(devices.values()))})

    def _cpus(self, running: RunningAttempt, cpu_seconds: float | None, before: _CpuTime | None) -> float | None:
        if cpu_seconds is None:
            return None
        now = _CpuTime(time.monotonic(), cpu_seconds)
        is_too_soon = before is not None and now.at - before.at < _MIN_INTERVAL_SECONDS
        self._previous[running.attempt.id] = before if before is not None and is_too_soon else now
        return _cores_between(before, now) if before else _cores_since_start(running, cpu_seconds)

    def _read_host(self, devices: Sequence[Device]) -> UsageSample:
        before, self._host = self._host, _CpuTime(time.monotonic(), host_cpu_seconds())
        cpus = None if before is None else _cores_between(before, self._host)
        return UsageSample(
            cpus, host_memory_used_mib(), tuple(self._device(None, device, 1) for device in devices)
        )

    def _device(self, attempt_id: AttemptId | None, device: Device | None, holders: int) -> DeviceSample:
        """For a shared device, the utilisation is that of all its attempts, the memory that of this attempt."""
        if device is None or not self._devices.are_real or not _is_measured(device):
            return DeviceSample()
        memory_mib = device.memory_used_mib
        if attempt_id is not None and holders > 1:
            memory_mib = self._devices.memory_used_by(attempt_id, device)
        return DeviceSample(device.utilisation, memory_mib, *self._power.get(device.uuid, (None, False)))

    def _read_power(self, device: Device) -> tuple[float | None, bool]:
        """Since the previous sample, by the counter of energy; without one, at this moment."""
        before, now = self._energy.pop(device.uuid, None), time.monotonic()
        if device.energy_millijoules is None:
            return device.power_watts, False
        if before is not None and now - before[0] < _MIN_INTERVAL_SECONDS:
            self._energy[device.uuid] = before
            return device.power_watts, False
        self._energy[device.uuid] = now, device.energy_millijoules
        if before is None or device.energy_millijoules < before[1]:  # the counter begins with the driver
            return device.power_watts, False
        return (device.energy_millijoules - before[1]) / 1000 / (now - before[0]), True


def _is_measured(device: Device) -> bool:
    """The driver reports only the memory of a MIG slice, and nothing of an unreadable device."""
    return device.utilisation is not None or device.problem is None


def _usage(running: RunningAttempt) -> ProcessUsage:
    try:
        return running.group.usage()
    except OSError:  # for example no free descriptor
        return ProcessUsage()


def _cores_between(before: _CpuTime, now: _CpuTime) -> float | None:
    """Never negative: the CPU time of a child is missing if its parent does not wait for it."""
    seconds = now.at - before.at
    return max(0.0, (now.cpu_seconds - before.cpu_seconds) / seconds) if seconds >= _MIN_INTERVAL_SECONDS else None


def _cores_since_start(running: RunningAttempt, cpu_seconds: float) -> float | None:
    seconds = time.monotonic() - running.started_monotonic
    return cpu_seconds / seconds if _MIN_INTERVAL_SECONDS <= seconds <= _YOUNG_SECONDS else None
