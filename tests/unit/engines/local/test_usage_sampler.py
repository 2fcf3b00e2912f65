"""What is read of the GPUs that attempts hold."""

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from heliostat.engines.local import usage_sampler as module
from heliostat.engines.local.gpu_monitor import GpuMonitor
from heliostat.engines.local.process_usage import ProcessUsage
from heliostat.engines.local.usage_sampler import UsageSampler
from heliostat.models import Device, DeviceProcess, DeviceSample

SHARED = Device(
    "GPU-1", 0, "A100", "A100", 81920, 9000, 70, processes=(DeviceProcess(11, 3000), DeviceProcess(12, 5000))
)


def running(number: int, *devices: str, usage: Any = lambda: ProcessUsage(1.0, 10.0)) -> Any:
    attempt = SimpleNamespace(id=f"{number}.1", devices=devices)
    group = SimpleNamespace(usage=usage)
    return SimpleNamespace(attempt=attempt, started_monotonic=time.monotonic(), group=group)


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> GpuMonitor:
    """Those of a driver that shows two processes, of attempts 1.1 and 2.1, on one GPU."""
    found = GpuMonitor("1xA100", "test")
    found.are_real = True
    monkeypatch.setattr(found, "current_devices", lambda: (SHARED,))
    monkeypatch.setattr(found, "_attempt_of", {11: "1.1", 12: "2.1"}.get)
    return found


def test_of_a_shared_gpu_each_has_its_own_memory_and_the_load_of_all(devices: GpuMonitor) -> None:
    read = UsageSampler(devices).read("here", [running(1, "GPU-1"), running(2, "GPU-1")])
    assert read.attempts["1.1"].devices == (DeviceSample(70, 3000),)
    assert read.attempts["2.1"].devices == (DeviceSample(70, 5000),)
    assert read.nodes["here"].devices == (DeviceSample(70, 9000),)


def test_who_is_alone_on_a_gpu_has_all_that_is_used_of_it(devices: GpuMonitor) -> None:
    [reading] = UsageSampler(devices).read("here", [running(1, "GPU-1")]).attempts.values()
    assert reading.devices == (DeviceSample(70, 9000),)


def test_of_a_mig_slice_only_the_memory_is_known(devices: GpuMonitor, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Device("MIG-1", 0, "A100-1g.10gb", "MIG", 9728, 700, slice_index=2, card_uuid="GPU-1")
    lost = replace(found, uuid="MIG-2", problem="lost", memory_used_mib=0)
    monkeypatch.setattr(devices, "current_devices", lambda: (found, lost))
    read = UsageSampler(devices).read("here", [running(1, "MIG-1", "MIG-2")])
    assert read.attempts["1.1"].devices == (DeviceSample(None, 700), DeviceSample())
    assert read.nodes["here"].devices == (DeviceSample(None, 700), DeviceSample())


def test_nothing_is_known_of_a_gpu_that_is_gone_or_made_up(devices: GpuMonitor) -> None:
    [reading] = UsageSampler(devices).read("here", [running(1, "GPU-gone")]).attempts.values()
    assert reading.devices == (DeviceSample(),)
    devices.are_real = False
    [reading] = UsageSampler(devices).read("here", [running(1, "GPU-1")]).attempts.values()
    assert reading.devices == (DeviceSample(),)


def test_an_attempt_that_cannot_be_read_does_not_hide_the_others(devices: GpuMonitor) -> None:
    def fail() -> ProcessUsage:
        raise OSError("no descriptor left")

    read = UsageSampler(devices).read("here", [running(1, usage=fail), running(2)])
    assert (read.attempts["1.1"].cpus, read.attempts["1.1"].memory_mib) == (None, None)
    assert read.attempts["2.1"].memory_mib == 10.0


def test_power_is_that_of_the_energy_counter_since_the_previous_sample(
    devices: GpuMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    sampler = UsageSampler(devices)

    def power(seconds: float, millijoules: int | None) -> tuple[float | None, bool]:
        clock[0] += seconds
        device = replace(SHARED, power_watts=90.0, energy_millijoules=millijoules)
        monkeypatch.setattr(devices, "current_devices", lambda: (device,))
        [sample] = sampler.read("here", []).nodes["here"].devices
        return sample.power_watts, sample.is_power_measured

    assert power(0, 5_000_000) == (90.0, False)
    assert power(10, 8_000_000) == (300.0, True)
    assert power(20, 10_000_000) == (100.0, True)
    assert power(10, 1_000) == (90.0, False)  # the driver was loaded again
    assert power(10, None) == (90.0, False)
