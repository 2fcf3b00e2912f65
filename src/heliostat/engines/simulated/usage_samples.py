"""Usage samples of simulated jobs and nodes. Deterministic for each job.

warm-up ──> plateau with waves; one in ten idles, some wait for data, some use only one of their GPUs
"""

import math
from collections.abc import Iterable, Mapping

from heliostat.engines.simulated.behaviour import UsageProfile, usage_profile_of
from heliostat.engines.simulated.cluster import device_under_load
from heliostat.models import Attempt, Device, DeviceSample, Node, UsageSample

_LOAD_SECONDS = 60.0  # until data and model are in memory
_SYSTEM_CPUS = 0.15  # used by the operating system
_SYSTEM_MIB = 1800.0


def sample_attempt(
    attempt: Attempt, devices: Mapping[str, Device], seconds: float, fails: bool = False
) -> UsageSample:
    """Usage after so many seconds. `fails`: the memory use grows until it runs out."""
    requested, tasks = attempt.job.resources, max(1, len(attempt.task_placements))
    profile = usage_profile_of(attempt.job.id)
    warm_up = min(1.0, max(0.0, seconds) / _LOAD_SECONDS)
    fraction = _wave(profile, seconds) * (0.3 + 0.7 * warm_up)
    fill = 1.0 if fails else profile.memory_utilisation
    growth = min(1.0, seconds / 300) if fails else 0.2 + 0.8 * warm_up
    return UsageSample(
        cpus=round(requested.cpus * tasks * fraction, 2),
        memory_mib=round(requested.memory_mib * tasks * fill * growth),
        devices=tuple(
            sample_device(device_under_load(devices[uuid], attempt, seconds))
            for uuid in dict.fromkeys(uuid for place in attempt.task_placements for uuid in place.devices)
            if uuid in devices
        ),
    )


def sample_node(node: Node, attempts: Iterable[tuple[UsageSample, float]]) -> UsageSample:
    """Usage of the operating system and of these attempts, each with the fraction that runs on this node."""
    cpus, memory_mib = _SYSTEM_CPUS, _SYSTEM_MIB
    for sample, fraction in attempts:
        cpus += (sample.cpus or 0) * fraction
        memory_mib += (sample.memory_mib or 0) * fraction
    return UsageSample(
        cpus=min(cpus, float(node.cpus)),
        memory_mib=min(memory_mib, float(node.memory_mib)),
        devices=tuple(sample_device(device) for device in node.devices),
    )


def sample_device(device: Device) -> DeviceSample:
    return DeviceSample(device.utilisation, device.memory_used_mib, device.power_watts)


def _wave(profile: UsageProfile, seconds: float) -> float:
    swing = math.sin(2 * math.pi * seconds / profile.period_seconds) + 0.4 * math.sin(2 * math.pi * seconds / 37)
    return min(1.0, max(0.0, profile.cpu_utilisation * (1 + 0.1 * swing)))
