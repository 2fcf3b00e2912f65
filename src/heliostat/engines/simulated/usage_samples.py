"""What made-up jobs use: believable, and for the same job the same each time it is asked.

warm-up ──> plateau with waves; one in ten idles, some wait for data, some use one of their GPUs
"""

import math
from collections.abc import Iterable, Mapping

from heliostat.engines.simulated.behaviour import UsageProfile, usage_profile_of
from heliostat.engines.simulated.cluster import device_under_load
from heliostat.models import Attempt, Device, DeviceSample, Node, UsageSample

_LOAD_SECONDS = 60.0  # until data and model are in memory
_SYSTEM_CPUS = 0.15  # what a machine does for itself
_SYSTEM_MIB = 1800.0


def sample_attempt(
    attempt: Attempt, devices: Mapping[str, Device], seconds: float, fails: bool = False
) -> UsageSample:
    """After it has run for so long. One that will run out of memory needs more and more of it."""
    wanted, tasks = attempt.job.resources, max(1, len(attempt.task_placements))
    habits = usage_profile_of(attempt.job.id)
    warmth = min(1.0, max(0.0, seconds) / _LOAD_SECONDS)
    part = _wave(habits, seconds) * (0.3 + 0.7 * warmth)
    fill = 1.0 if fails else habits.memory_utilisation
    growth = min(1.0, seconds / 300) if fails else 0.2 + 0.8 * warmth
    return UsageSample(
        cpus=round(wanted.cpus * tasks * part, 2),
        memory_mib=round(wanted.memory_mib * tasks * fill * growth),
        devices=tuple(
            sample_device(device_under_load(devices[uuid], attempt, seconds))
            for uuid in dict.fromkeys(uuid for place in attempt.task_placements for uuid in place.devices)
            if uuid in devices
        ),
    )


def sample_node(node: Node, attempts: Iterable[tuple[UsageSample, float]]) -> UsageSample:
    """What these attempts use there (each with the part of it that runs there) and the machine itself."""
    cpus, memory_mib = _SYSTEM_CPUS, _SYSTEM_MIB
    for reading, part in attempts:
        cpus += (reading.cpus or 0) * part
        memory_mib += (reading.memory_mib or 0) * part
    return UsageSample(
        cpus=min(cpus, float(node.cpus)),
        memory_mib=min(memory_mib, float(node.memory_mib)),
        devices=tuple(sample_device(device) for device in node.devices),
    )


def sample_device(device: Device) -> DeviceSample:
    return DeviceSample(device.utilisation, device.memory_used_mib)


def _wave(habits: UsageProfile, seconds: float) -> float:
    swing = math.sin(2 * math.pi * seconds / habits.period_seconds) + 0.4 * math.sin(2 * math.pi * seconds / 37)
    return min(1.0, max(0.0, habits.cpu_utilisation * (1 + 0.1 * swing)))
