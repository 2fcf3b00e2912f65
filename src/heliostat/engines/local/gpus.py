"""The GPUs of this machine: found, simulated or none.

`find_gpus` chooses once, at the start; `read` then says how the devices are now. Whatever the driver does
(fail, hang, forget a card), `read` answers, and a GPU once seen stays listed with its problem.
"""

import ctypes
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from heliostat.errors import Invalid
from heliostat.models.nodes import Device, DeviceProcess

LIBRARY = "libnvidia-ml.so.1"
MAX_SIMULATED_GPUS = 256
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
        """A sentence for people about the last reading; None when there is nothing to say."""

    def read(self) -> list[Device]:
        """The devices now, by index. Never raises, and waits for a silent driver once, not every time."""


class GpuDriver(Protocol):
    """Whatever talks to the cards. It may raise, and it may hang."""

    def read(self) -> list[Device]:
        """The devices now, those that cannot be read as `unreadable`."""


def find_gpus(simulate: str | None = None) -> GpuSource:
    """The simulated GPUs if asked for, else those of the NVIDIA driver, else none, with a note why.

    `simulate` is like "4xA100" or "2xA100,2xT4"; other text raises `Invalid`.
    """
    if simulate is not None:
        return SimulatedGpus(simulate)
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return NoGpus(_why_no_library(Path("/sys/bus/pci/devices")))
    # Only here, as it imports pynvml and us.
    from heliostat.engines.local.nvml import NvmlDriver

    gpus = DriverGpus(NvmlDriver())
    # Without persistence mode the driver wakes every card at first contact, which takes seconds for each.
    gpus.read(patience_seconds=30.0)
    return gpus


def unreadable_device(index: int) -> Device:
    """A GPU of which nothing is known but its place; not to be used until more is."""
    problem = "the GPU cannot be read"
    return Device(f"unreadable-{index}", index, "unknown", "unknown GPU", memory_mib=0, problem=problem)


def mark_used_outside(devices: Iterable[Device], is_ours: Callable[[int], bool]) -> list[Device]:
    """The devices, with `used_outside` saying who computes there without the queue, or None."""
    return [replace(device, used_outside=_used_outside(device, is_ours)) for device in devices]


class NoGpus:
    """A machine without GPUs that can be used."""

    def __init__(self, note: str) -> None:
        self.note: str | None = note

    def read(self) -> list[Device]:
        return []


class SimulatedGpus:
    """Devices that exist on paper only, for trying things out and for tests."""

    def __init__(self, text: str) -> None:
        groups = parse_simulated_gpus(text)
        types = [type_ for count, type_ in groups for _ in range(count)]
        self.note: str | None = " and ".join(f"{count} simulated {type_}" for count, type_ in groups)
        self._devices = [_simulated(index, type_) for index, type_ in enumerate(types)]

    def read(self) -> list[Device]:
        return list(self._devices)


class DriverGpus:
    """The GPUs a driver tells of, remembered when it stops telling.

    The driver is asked in a thread of its own, because a call into a sick driver may never come back.
    """

    def __init__(self, driver: GpuDriver) -> None:
        self.note: str | None = None
        self._driver = driver
        self._lock = threading.Lock()
        self._question: _Question | None = None
        self._known: dict[str, Device] = {}

    def read(self, patience_seconds: float = 5.0) -> list[Device]:
        try:
            question = self._ask(patience_seconds)
            now = question.answer.result(timeout=max(0.0, question.deadline - time.monotonic()))
        except TimeoutError:
            return self._remembered("the NVIDIA driver does not answer; a reboot usually helps")
        except Exception as error:  # noqa: BLE001 - the queue goes on whatever the driver does
            return self._remembered(str(error) or type(error).__name__)
        return self._learn(now)

    def _ask(self, patience_seconds: float) -> "_Question":
        """The question under way, or a new one: a driver that hangs is not asked again and again."""
        with self._lock:
            if self._question is None or self._question.answer.done():
                question = _Question(Future(), time.monotonic() + patience_seconds)
                threading.Thread(
                    target=_answer, args=(self._driver, question.answer), name="gpus", daemon=True
                ).start()
                self._question = question
            return self._question

    def _learn(self, now: Sequence[Device]) -> list[Device]:
        with self._lock:
            devices = add_missing_devices(now, self._known.values())
            self._known = {device.uuid: device for device in devices if device.type != "unknown"}
            self.note = None if devices else _NONE_LISTED
            return devices

    def _remembered(self, problem: str) -> list[Device]:
        with self._lock:
            self.note = f"No GPU can be used, only CPU jobs run: {problem}."
            return [_silent(device, problem) for device in self._known.values()]


@dataclass(frozen=True, slots=True)
class _Question:
    answer: Future[list[Device]]
    deadline: float  # on the monotonic clock


_NONE_LISTED = (
    "No GPU found, CPU jobs run: the NVIDIA driver works but lists no card. If there should be one, "
    "`dmesg` tells what the driver says of it."
)


def add_missing_devices(now: Sequence[Device], known: Collection[Device]) -> list[Device]:
    """What the driver says now, completed by what was known of cards it cannot read or no longer lists."""
    uuids = {device.uuid for device in now}
    missing = {device.index: device for device in known if device.uuid not in uuids}
    devices = [_completed(device, known, missing) for device in now]
    listed = {device.uuid for device in devices}
    gone = "the driver no longer lists this GPU; look at its power and seat, then reboot"
    devices += [_silent(device, gone) for device in known if device.uuid not in listed]
    return sorted(devices, key=lambda device: device.index)


def parse_simulated_gpus(text: str) -> list[tuple[int, str]]:
    """How many of which type: [(2, "A100"), (2, "T4")] for "2xA100,2xT4". Raises `Invalid`."""
    matches = [re.fullmatch(r"\s*(\d{1,4})x([A-Za-z][A-Za-z0-9.-]*)\s*", part, re.I) for part in text.split(",")]
    groups = [(int(match[1]), _usual_spelling(match[2])) for match in matches if match]
    total = sum(count for count, _ in groups)
    if len(groups) == len(matches) and all(count for count, _ in groups) and total <= MAX_SIMULATED_GPUS:
        return groups
    raise Invalid(
        f'Cannot simulate the GPUs "{text}".',
        f'Write how many and which, like "4xA100" or "2xA100,2xT4"; {MAX_SIMULATED_GPUS} at most.',
    )


def _simulated(index: int, type_: str) -> Device:
    memory_mib = SIMULATED_MEMORY_MIB.get(type_, DEFAULT_SIMULATED_MEMORY_MIB)
    return Device(f"SIM-{type_}-{index}", index, type_, f"Simulated {type_}", memory_mib, utilisation=0)


def _usual_spelling(type_: str) -> str:
    return next((usual for usual in SIMULATED_MEMORY_MIB if usual.casefold() == type_.casefold()), type_)


def _answer(driver: GpuDriver, answer: Future[list[Device]]) -> None:
    try:
        answer.set_result(driver.read())
    except BaseException as error:  # noqa: BLE001 - handed to the one who asks
        answer.set_exception(error)


def _completed(device: Device, known: Collection[Device], missing: Mapping[int, Device]) -> Device:
    """An unreadable device with what was known of it: by its uuid, or by its place if even that is lost."""
    if device.type != "unknown":
        return device
    same = {old.uuid: old for old in known}.get(device.uuid)
    if device.uuid == unreadable_device(device.index).uuid:
        same = missing.get(device.index)
    return _silent(same, device.problem) if same else device


def _silent(device: Device, problem: str | None) -> Device:
    """The device with what lasts; what it was doing when last seen says nothing about now."""
    return replace(device, problem=problem, memory_used_mib=0, utilisation=None, temperature=None, processes=())


def _used_outside(device: Device, is_ours: Callable[[int], bool]) -> str | None:
    foreign = [process for process in device.processes if not is_ours(process.pid)]
    if not foreign:
        return None
    more = f", and {len(foreign) - 1} more" if len(foreign) > 1 else ""
    return f"in use outside the queue by {_who(foreign[0])}{more}"


def _who(process: DeviceProcess) -> str:
    if process.user is None:
        # It is ending, its memory not yet given back, or it lives in a container we cannot look into.
        return f"a process that cannot be seen (pid {process.pid})"
    command = f": {process.command}" if process.command else ""
    return f"{process.user}{command} (pid {process.pid})"


def _why_no_library(pci: Path) -> str:
    if _has_nvidia_card(pci):
        return (
            "An NVIDIA card is in this machine but no NVIDIA driver, so only CPU jobs run. "
            "Install the driver until `nvidia-smi` lists the card, then restart Heliostat."
        )
    return (
        f"No GPU found: CPU jobs run. If there should be one: the NVIDIA driver ({LIBRARY}) "
        "is not installed; install it until `nvidia-smi` lists the card, then restart Heliostat."
    )


def _has_nvidia_card(pci: Path) -> bool:
    """Whether a display or 3D controller (PCI class 03) of NVIDIA (vendor 10de) is plugged in."""
    return any(
        _text(slot / "vendor") == "0x10de" and _text(slot / "class").startswith("0x03") for slot in pci.glob("*")
    )


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
