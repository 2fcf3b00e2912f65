"""GPUs of this machine: detected by the NVIDIA driver, simulated, or none.

`find_gpus` chooses the source once, at the start; `read` then returns the current devices. `read` always returns,
even if the driver fails, hangs or loses a card, and a GPU that was detected once stays listed with its problem.
"""

import ctypes
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from heliostat.config.sections import MAX_SIMULATED_GPUS
from heliostat.errors import Invalid
from heliostat.models.gpu_types import slice_memory_mib
from heliostat.models.nodes import Device, DeviceProcess

LIBRARY = "libnvidia-ml.so.1"
SIMULATED_MEMORY_MIB = {
    "T4": 16 * 1024,
    "L4": 24 * 1024,
    "V100": 32 * 1024,
    "A40": 48 * 1024,
    "L40S": 48 * 1024,
    "A100": 80 * 1024,
    "H100": 80 * 1024,
    "H200": 141 * 1024,
    "B200": 180 * 1024,
}
DEFAULT_SIMULATED_MEMORY_MIB = 24 * 1024


class GpuSource(Protocol):
    @property
    def note(self) -> str | None:
        """A sentence for users about the last reading; None: no remark."""

    def read(self) -> list[Device]:
        """The current devices, by index. Never raises, and waits only once for a driver that does not answer."""


class GpuDriver(Protocol):
    """Access to the driver. May raise, and may hang."""

    def read(self) -> list[Device]:
        """The current devices; those that cannot be read as `unreadable_device`."""


def find_gpus(simulate: str | None = None) -> GpuSource:
    """Simulated GPUs if requested, else those of the NVIDIA driver, else none, with a note that explains why.

    `simulate`: for example "4xA100" or "2xA100,2xT4"; other text raises `Invalid`.
    """
    if simulate is not None:
        return SimulatedGpus(simulate)
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return NoGpus(_explain_missing_library(Path("/sys/bus/pci/devices")))
    # Imported here, since that module imports pynvml and this module.
    from heliostat.engines.local.nvml import NvmlDriver

    gpus = DriverGpus(NvmlDriver())
    # Without persistence mode the driver initializes every card at the first call, which takes seconds for each.
    gpus.read(timeout_seconds=30.0)
    return gpus


def unreadable_device(index: int) -> Device:
    """A GPU of which only the index is known. It must not be used."""
    problem = "the GPU cannot be read"
    return Device(f"unreadable-{index}", index, "unknown", "unknown GPU", memory_mib=0, problem=problem)


def mark_used_outside(devices: Iterable[Device], is_ours: Callable[[int], bool]) -> list[Device]:
    """The devices with `used_outside` set: the process that computes there outside the queue, or None."""
    return [replace(device, used_outside=_used_outside(device, is_ours)) for device in devices]


class NoGpus:
    """A machine without usable GPUs."""

    def __init__(self, note: str) -> None:
        self.note: str | None = note

    def read(self) -> list[Device]:
        return []


class SimulatedGpus:
    """Simulated devices, for trials and tests."""

    def __init__(self, text: str) -> None:
        groups = parse_simulated_gpus(text)
        types = [type_ for count, type_ in groups for _ in range(count)]
        self.note: str | None = " and ".join(f"{count} simulated {type_}" for count, type_ in groups)
        self._devices = [_simulated(index, type_) for index, type_ in enumerate(types)]

    def read(self) -> list[Device]:
        return list(self._devices)


class DriverGpus:
    """The GPUs that a driver lists; they stay listed when the driver fails.

    The driver is called in a separate thread, because a call into a faulty driver may never return.
    """

    def __init__(self, driver: GpuDriver) -> None:
        self.note: str | None = None
        self._driver = driver
        self._lock = threading.Lock()
        self._reading: _Reading | None = None
        self._known: dict[str, Device] = {}

    def read(self, timeout_seconds: float = 5.0) -> list[Device]:
        try:
            reading = self._current_reading(timeout_seconds)
            now = reading.result.result(timeout=max(0.0, reading.deadline - time.monotonic()))
        except TimeoutError:
            return self._known_with_problem("the NVIDIA driver does not answer; a reboot usually helps")
        except Exception as error:  # noqa: BLE001 - jobs must run even if the driver fails
            return self._known_with_problem(str(error) or type(error).__name__)
        return self._update_known(now)

    def _current_reading(self, timeout_seconds: float) -> "_Reading":
        """The reading under way, or a new one: a driver that hangs is not called again."""
        with self._lock:
            if self._reading is None or self._reading.result.done():
                reading = _Reading(Future(), time.monotonic() + timeout_seconds)
                threading.Thread(
                    target=_read_driver, args=(self._driver, reading.result), name="gpus", daemon=True
                ).start()
                self._reading = reading
            return self._reading

    def _update_known(self, now: Sequence[Device]) -> list[Device]:
        with self._lock:
            devices = add_missing_devices(now, self._known.values())
            self._known = {device.uuid: device for device in devices if device.type != "unknown"}
            self.note = None if devices else _NONE_LISTED
            return devices

    def _known_with_problem(self, problem: str) -> list[Device]:
        with self._lock:
            self.note = f"No GPU can be used, only CPU jobs can run: {problem}."
            return [_without_measurements(device, problem) for device in self._known.values()]


@dataclass(frozen=True, slots=True)
class _Reading:
    result: Future[list[Device]]
    deadline: float  # on the monotonic clock


_NONE_LISTED = (
    "No GPU found, only CPU jobs can run: the NVIDIA driver works but lists no card. If a card is installed, "
    "see the driver's messages in `dmesg`."
)


def add_missing_devices(now: Sequence[Device], known: Collection[Device]) -> list[Device]:
    """The devices of the current reading, completed by what is known of cards that it cannot read or lacks.

    The former devices of a card that was split into other MIG slices, or is whole again, are forgotten.
    """
    cards = {device.card for device in now}
    devices = [found for device in now for found in _completed(device, known, cards)]
    listed = {device.card for device in devices}
    gone = "the driver no longer lists this GPU; check its power and its slot, then reboot"
    devices += [_without_measurements(device, gone) for device in known if device.card not in listed]
    return sorted(devices, key=lambda device: (device.index, device.slice_index or 0))


def parse_simulated_gpus(text: str) -> list[tuple[int, str]]:
    """Count and type: [(2, "A100"), (2, "T4")] for "2xA100,2xT4". Raises `Invalid`."""
    matches = [re.fullmatch(r"\s*(\d{1,4})x([A-Za-z][A-Za-z0-9.-]*)\s*", part, re.I) for part in text.split(",")]
    groups = [(int(match[1]), _standard_spelling(match[2])) for match in matches if match]
    total = sum(count for count, _ in groups)
    if len(groups) == len(matches) and all(count for count, _ in groups) and total <= MAX_SIMULATED_GPUS:
        return groups
    raise Invalid(
        f'Invalid value for simulated GPUs: "{text}".',
        f'Write count and type, for example "4xA100" or "2xA100,2xT4"; at most {MAX_SIMULATED_GPUS}.',
    )


def _simulated(index: int, type_: str) -> Device:
    memory_mib = slice_memory_mib(type_) or SIMULATED_MEMORY_MIB.get(type_, DEFAULT_SIMULATED_MEMORY_MIB)
    return Device(f"SIM-{type_}-{index}", index, type_, f"Simulated {type_}", memory_mib, utilisation=0)


def _standard_spelling(type_: str) -> str:
    return next((name for name in SIMULATED_MEMORY_MIB if name.casefold() == type_.casefold()), type_)


def _read_driver(driver: GpuDriver, result: Future[list[Device]]) -> None:
    try:
        result.set_result(driver.read())
    except BaseException as error:  # noqa: BLE001 - raised again in the caller
        result.set_exception(error)


def _completed(device: Device, known: Collection[Device], cards: Collection[str]) -> list[Device]:
    """What is known of an unreadable card, whole or split: by uuid or, if the uuid is unreadable, by index."""
    if device.type != "unknown":
        return [device]
    same = [old for old in known if device.uuid in (old.uuid, old.card)]
    if device.uuid == unreadable_device(device.index).uuid:
        same = [old for old in known if old.index == device.index and old.card not in cards]
    failed = [replace(_without_measurements(old, device.problem), errors=device.errors) for old in same]
    return failed or [device]


def _without_measurements(device: Device, problem: str | None) -> Device:
    """The device without its last measurements, which are outdated."""
    return replace(
        device,
        problem=problem,
        memory_used_mib=0,
        utilisation=None,
        temperature=None,
        power_watts=None,
        energy_millijoules=None,
        processes=(),
        errors=(),
    )


def _used_outside(device: Device, is_ours: Callable[[int], bool]) -> str | None:
    foreign = [process for process in device.processes if not is_ours(process.pid)]
    if not foreign:
        return None
    more = f", and {len(foreign) - 1} more" if len(foreign) > 1 else ""
    return f"in use outside the queue by {_describe_process(foreign[0])}{more}"


def _describe_process(process: DeviceProcess) -> str:
    if process.user is None:
        # It is ending and its memory is not released yet, or it runs in a container that is not visible here.
        return f"a hidden process (pid {process.pid})"
    command = f": {process.command}" if process.command else ""
    return f"{process.user}{command} (pid {process.pid})"


def _explain_missing_library(pci: Path) -> str:
    if _has_nvidia_card(pci):
        return (
            "This machine has an NVIDIA card but no NVIDIA driver, so only CPU jobs can run. "
            "Install the driver, check that `nvidia-smi` lists the card, then restart Heliostat."
        )
    return (
        f"No GPU found, only CPU jobs can run: the NVIDIA driver ({LIBRARY}) is not installed. If a card is "
        "installed, install the driver, check that `nvidia-smi` lists the card, then restart Heliostat."
    )


def _has_nvidia_card(pci: Path) -> bool:
    """Whether a display or 3D controller (PCI class 03) of NVIDIA (vendor 10de) is installed."""
    return any(
        _text(slot / "vendor") == "0x10de" and _text(slot / "class").startswith("0x03") for slot in pci.glob("*")
    )


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
