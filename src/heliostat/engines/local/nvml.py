"""NVIDIA GPUs, read from their driver by NVML.

Calls may hang with a faulty driver: `gpus.DriverGpus` handles that.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml

from heliostat.engines.local.gpus import unreadable_device
from heliostat.engines.local.process_names import process_program_name, process_user
from heliostat.models.gpu_types import is_slice, slice_type
from heliostat.models.nodes import Device, DeviceProcess

MIB = 1024 * 1024
RETRY_SECONDS = 60.0

# Not supported by this GPU or driver, or not permitted for this user. Not a fault of the card.
_NOT_OFFERED = {
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_NO_DATA,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED,
    pynvml.NVML_ERROR_DEPRECATED,
}
_DRIVER_ERRORS = {
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the NVIDIA library is installed but the kernel driver is not loaded; "
        "try `sudo modprobe nvidia`, and if that fails install the driver for the running kernel"
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the NVIDIA driver was updated while the old one was still loaded; reboot this machine"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "this user may not use the NVIDIA driver; check the permissions of /dev/nvidiactl and /dev/nvidia0"
    ),
}
_ERROR_KINDS = {pynvml.NVML_ERROR_GPU_IS_LOST: "lost", pynvml.NVML_ERROR_RESET_REQUIRED: "reset_required"}
# Reasons for slow clocks that name a fault. The driver also slows down at its limits of power and temperature.
_SLOWDOWNS = {
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "overheated",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power_brake",
}
_GPU_ERRORS = {
    pynvml.NVML_ERROR_GPU_IS_LOST: (
        "lost: the GPU has fallen off the bus; reboot, and check the card and its power if it happens again"
    ),
    pynvml.NVML_ERROR_RESET_REQUIRED: "the GPU must be reset; reboot this machine",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user has no permission to use the GPU",
}
# Errors because of which a GPU is not used while the driver reports them.
_PROBLEMS = {
    "ecc": "uncorrected memory (ECC) errors",
    "remapping_failed": "faulty memory cannot be repaired (row remapping failed); replace the card",
    "remapping_pending": "a memory repair (row remapping) waits for a reboot",
    "retirement_pending": "a memory repair (page retirement) waits for a reboot",
}
_NO_SLICES = (
    "MIG mode is on, but there is no MIG slice; create slices, for example with `nvidia-smi mig -cgi 19,19 -C`, "
    "or turn MIG mode off"
)
_CARD_FILE = "/dev/nvidia"
_CAPABILITIES = Path("/proc/driver/nvidia/capabilities")
# Words of a product name that do not identify the GPU type.
_NOISE = re.compile(
    r"NVIDIA|TESLA|GEFORCE|SXM\d?|PCIE|NVL|HBM\d\w?|\d+GB?|GPU|GENERATION|BLACKWELL|SERVER|WORKSTATION|EDITION"
    r"|WITH|DESIGN",
    re.IGNORECASE,
)


class DriverUnavailable(Exception):
    """The driver cannot be used; the message is the reason."""


class NvmlDriver:
    """Reads all GPUs; stays connected between readings, since connecting may initialize every card."""

    def __init__(self) -> None:
        self._retry_at = 0.0
        self._why = ""
        self._connected = False

    def read(self) -> list[Device]:
        """The current devices. A GPU that cannot be read is listed with its problem. Raises DriverUnavailable."""
        if not self._connected and time.monotonic() < self._retry_at:
            raise DriverUnavailable(self._why)
        try:
            if not self._connected:
                _call(pynvml.nvmlInit)
            self._connected = True
            count: int = _call(pynvml.nvmlDeviceGetCount)
        except pynvml.NVMLError as error:
            self._disconnect(describe_driver_error(error))
            raise DriverUnavailable(self._why) from error
        return [device for index in range(count) for device in read_card(index)]

    def _disconnect(self, why: str) -> None:
        """Retry later, not at each reading: every attempt makes the kernel search for cards and log it."""
        was_connected, self._connected = self._connected, False
        self._why = why
        self._retry_at = time.monotonic() + RETRY_SECONDS
        if was_connected:
            with suppress(pynvml.NVMLError):
                _call(pynvml.nvmlShutdown)


def read_card(index: int) -> list[Device]:
    """The GPU, or its slices in MIG mode; if a call fails, the values read so far, and the problem."""
    card = unreadable_device(index)
    try:
        handle = _call(pynvml.nvmlDeviceGetHandleByIndex, index)
        minor = _or_none(pynvml.nvmlDeviceGetMinorNumber, handle)
        files = (f"{_CARD_FILE}{index if minor is None else minor}",)
        card = replace(card, uuid=_call(pynvml.nvmlDeviceGetUUID, handle), pci=_pci_address(handle), files=files)
        mode = _or_none(pynvml.nvmlDeviceGetMigMode, handle)
        slices = list(_slice_handles(handle)) if mode and mode[0] else None
    except pynvml.NVMLError as error:
        return [_failed(card, error)]
    card = _with_facts(card, handle)
    if slices is None or card.type == "unknown":
        return [card]
    return [_read_slice(card, *found) for found in slices] or [replace(card, problem=card.problem or _NO_SLICES)]


def short_gpu_type(name: str) -> str:
    """The short type of a GPU: "A100" for "NVIDIA A100-SXM4-80GB", "A100-1g.10gb" for a MIG slice of it."""
    name, _, profile = name.partition(" MIG ")
    if profile:
        return slice_type(short_gpu_type(name), profile) or short_gpu_type(f"{name} {profile}")
    words = [word for word in re.findall(r"[A-Za-z0-9.]+", name) if not _NOISE.fullmatch(word)]
    if len(words) > 1 and words[0] == "RTX" and re.fullmatch(r"A\d{3,4}", words[1]):
        words = words[1:]  # "RTX A6000" is known as A6000
    return "-".join(words) or "GPU"


def describe_driver_error(error: pynvml.NVMLError) -> str:
    return _DRIVER_ERRORS.get(_code(error)) or f"the NVIDIA driver fails ({error}); check it with `nvidia-smi`"


def describe_gpu_error(error: pynvml.NVMLError) -> str:
    return _GPU_ERRORS.get(_code(error)) or f"the GPU cannot be read ({error}); check it with `nvidia-smi`"


def _slice_handles(card: Any) -> Iterator[tuple[int, str, Any]]:
    """Index, uuid and handle of the MIG slices of a card. The indexes can have gaps."""
    for index in range(_call(pynvml.nvmlDeviceGetMaxMigDeviceCount, card)):
        try:
            handle = _call(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, card, index)
            yield index, _call(pynvml.nvmlDeviceGetUUID, handle), handle
        except pynvml.NVMLError as error:
            if _code(error) != pynvml.NVML_ERROR_NOT_FOUND:
                raise


def _read_slice(card: Device, index: int, uuid: str, handle: Any) -> Device:
    """A MIG slice. Problems and temperature are those of the card; the driver reports no utilisation."""
    device = replace(unreadable_device(card.index), uuid=uuid, card_uuid=card.uuid, slice_index=index)
    try:
        device = _with_lasting_facts(device, handle)
        return replace(
            device,
            temperature=card.temperature,
            problem=card.problem if is_slice(device.type) else "its MIG profile is unknown",
            pci=card.pci,
            errors=card.errors,
            processes=tuple(_processes(handle)),
            files=(*card.files, *_capability_files(card, handle)),
        )
    except pynvml.NVMLError as error:
        return _failed(device, error)


def _capability_files(card: Device, handle: Any) -> Iterator[str]:
    """Device files that give access to the GPU instance and the compute instance of a MIG slice."""
    instance = _CAPABILITIES / f"gpu{card.files[0].removeprefix(_CARD_FILE)}/mig"
    instance /= f"gi{_call(pynvml.nvmlDeviceGetGpuInstanceId, handle)}"
    compute = instance / f"ci{_call(pynvml.nvmlDeviceGetComputeInstanceId, handle)}"
    for folder in (instance, compute):
        if minor := capability_minor(folder / "access"):
            yield f"/dev/nvidia-caps/nvidia-cap{minor}"


def capability_minor(file: Path) -> str | None:
    """The number in `DeviceFileMinor: 66`; None: the driver does not offer this file."""
    try:
        found = re.search(r"^DeviceFileMinor:\s*(\d+)$", file.read_text(), re.MULTILINE)
    except OSError:
        return None
    return found[1] if found else None


def _with_facts(device: Device, handle: Any) -> Device:
    try:
        device = _with_lasting_facts(device, handle)
        return _with_present_facts(device, handle)
    except pynvml.NVMLError as error:
        return _failed(device, error)


def _failed(device: Device, error: pynvml.NVMLError) -> Device:
    kind = _ERROR_KINDS.get(_code(error))
    return replace(device, problem=describe_gpu_error(error), errors=((kind, 1),) if kind else ())


def _pci_address(handle: Any) -> str | None:
    """Domain, bus and slot, as the kernel log names the card: "0000:3b:00"."""
    info = _or_none(pynvml.nvmlDeviceGetPciInfo, handle)
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}" if info else None


def _with_lasting_facts(device: Device, handle: Any) -> Device:
    name: str = _call(pynvml.nvmlDeviceGetName, handle)
    memory = _memory(handle)
    return replace(
        device,
        type=short_gpu_type(name),
        name=name,
        memory_mib=memory.total // MIB if memory else 0,
        memory_used_mib=memory.used // MIB if memory else 0,
    )


def _with_present_facts(device: Device, handle: Any) -> Device:
    utilisation = _or_none(pynvml.nvmlDeviceGetUtilizationRates, handle)
    milliwatts = _or_none(pynvml.nvmlDeviceGetPowerUsage, handle)
    errors = tuple(_errors(handle))
    return replace(
        device,
        utilisation=utilisation.gpu if utilisation else None,
        temperature=_or_none(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        power_watts=None if milliwatts is None else milliwatts / 1000,
        energy_millijoules=_or_none(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle),
        problem="; ".join(_describe_problem(*error) for error in errors if error[0] in _PROBLEMS) or None,
        errors=errors,
        processes=tuple(_processes(handle)),
    )


def _memory(handle: Any) -> Any:
    """Version 2 excludes memory reserved by the driver, like nvidia-smi; old drivers do not support it."""
    newer = _or_none(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    return newer or _or_none(pynvml.nvmlDeviceGetMemoryInfo, handle)


def _errors(handle: Any) -> Iterator[tuple[str, int]]:
    """Kind (`models/gpu_errors.py`) and number of the errors since the driver started."""
    ecc = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    if count := _or_none(pynvml.nvmlDeviceGetTotalEccErrors, handle, *ecc):
        yield "ecc", int(count)
    yield from _memory_repairs(handle)
    reasons = _or_none(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
    for reason, kind in _SLOWDOWNS.items():
        if reasons & reason:
            yield kind, 1


def _memory_repairs(handle: Any) -> Iterator[tuple[str, int]]:
    """Ampere and newer GPUs remap rows of faulty memory, older GPUs retire pages; both at the next reset."""
    _, _, pending, failed = _or_none(pynvml.nvmlDeviceGetRemappedRows, handle) or (0, 0, 0, 0)
    if failed:
        yield "remapping_failed", 1
    elif pending:
        yield "remapping_pending", 1
    if _or_none(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle):
        yield "retirement_pending", 1


def _describe_problem(kind: str, count: int) -> str:
    if kind != "ecc":
        return _PROBLEMS[kind]
    errors = "an uncorrected memory (ECC) error" if count == 1 else f"{count} {_PROBLEMS[kind]}"
    return f"{errors} since the driver started; reboot"


def _processes(handle: Any) -> list[DeviceProcess]:
    """Compute processes only: graphics processes of a desktop do not prevent jobs."""
    # With the version: with a driver before 510, the name without it raises another kind of error.
    processes = _or_none(pynvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)
    if processes is None:
        processes = _or_none(pynvml.nvmlDeviceGetComputeRunningProcesses_v2, handle) or []
    used = {process.pid: (process.usedGpuMemory or 0) // MIB for process in processes}
    return [DeviceProcess(pid, mib, process_user(pid), process_program_name(pid)) for pid, mib in used.items()]


def _call(function: Callable[..., Any], *args: Any) -> Any:
    """The only place that calls pynvml, which has no type annotations."""
    return function(*args)


def _or_none(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return _call(function, *args)
    except pynvml.NVMLError as error:
        if _code(error) in _NOT_OFFERED:
            return None
        raise


def _code(error: Any) -> int:
    return int(error.value)
