"""GPU monitor: which GPUs of this machine may be allocated, and which other processes use them."""

import os
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from heliostat.engines.contract import GpuErrorCallback
from heliostat.engines.local.gpu_errors import GpuErrors
from heliostat.engines.local.gpus import NoGpus, SimulatedGpus, find_gpus, mark_used_outside
from heliostat.engines.local.kernel_log import KernelLog, open_kernel_log
from heliostat.models import AttemptEnded, AttemptId, Device

_INTERVAL_SECONDS = 5.0
_GONE = "gone"

ListAttemptsByDevice = Callable[[], Mapping[str, Collection[AttemptId]]]
"""For each device, the attempts that run there."""


class GpuMonitor:
    """Keeps the latest reading, and reports changes that affect the allocation of devices.

    A device is allocated only when it is empty: while the driver lists other processes than those of the attempts
    that hold it, it is unavailable and has a problem with the reason.
    """

    def __init__(
        self,
        simulate: str | None,
        instance: str,
        holders: ListAttemptsByDevice = dict,
        *,
        release_seconds: float = 2.0,
        kernel_log: KernelLog | None = None,
    ) -> None:
        """`release_seconds`: how long a device may still list processes of an attempt that has ended."""
        self._release_seconds = release_seconds
        self._gpus = find_gpus(simulate)
        self._holders = holders
        self._in_group = re.compile(rf"heliostat-{instance}/(\d+\.\d+)")
        self._marked = re.compile(rf"(?:^|\0)HELIOSTAT_MARK={instance}-(\d+\.\d+)(?:\0|$)".encode())
        self._changed: Callable[[], None] = lambda: None
        self._closing = threading.Event()
        self.are_real = not isinstance(self._gpus, NoGpus | SimulatedGpus)
        self._now = self._read()
        if kernel_log is None:
            kernel_log = KernelLog(open_kernel_log() if self.are_real else None)
        self._kernel_log, self._errors = kernel_log, GpuErrors(kernel_log, self._attempt_of, holders)
        self.update_errors()
        if self.are_real:
            threading.Thread(target=self._keep_reading, name="gpu-watch", daemon=True).start()
            threading.Thread(target=self._follow_kernel_log, name="kernel-log", daemon=True).start()

    @property
    def note(self) -> str | None:
        return self._gpus.note

    def on_change(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def set_error_callback(self, report: GpuErrorCallback) -> None:
        self._errors.set_callback(report)

    def update_errors(self) -> None:
        """Call this also before an attempt is known to have ended: later its processes have no names."""
        self._errors.update(self._now)

    def explain_end(self, end: AttemptEnded, uuids: Collection[str], started_at: datetime) -> AttemptEnded:
        """The end, with the error of a GPU that caused it, if any."""
        return self._errors.explain_end(end, [device for device in self._now if device.uuid in uuids], started_at)

    def current_devices(self) -> tuple[Device, ...]:
        return self._now

    def read_card(self, card: str) -> tuple[list[Device], set[AttemptId]]:
        """The devices of this card, read now, and the attempts that use them."""
        self._refresh()
        devices, holders = [device for device in self._now if device.card == card], self._holders()
        return devices, {attempt_id for device in devices for attempt_id in holders.get(device.uuid, ())}

    def memory_mib(self, uuids: Sequence[str]) -> int | None:
        """The memory of the first of these."""
        return next((device.memory_mib for device in self._now if device.uuid in uuids[:1]), None)

    def device_files(self, uuids: Sequence[str]) -> tuple[str, ...] | None:
        """The device files of these GPUs; None: they are simulated."""
        if not self.are_real:
            return None
        files = (file for device in self._now if device.uuid in uuids for file in device.files)
        return tuple(dict.fromkeys(files))  # slices of one card share its file

    def unavailable_reason(self, uuids: Sequence[str]) -> str | None:
        """Reads the devices again, just before they are allocated. Why they cannot be used; None: they can."""
        if not uuids:
            return None
        self._refresh()
        devices = {device.uuid: device for device in self._now}
        for uuid in uuids:
            device = devices.get(uuid)
            if device is None:
                return f"GPU {uuid} no longer exists"
            if not device.is_available:
                return f"GPU {device.number}: {device.problem or device.used_outside}"
        return None

    def wait_until_released(self, attempt_id: AttemptId, uuids: Sequence[str]) -> bool:
        """Wait until the driver lists no process of this ended attempt on these devices.

        False after `release_seconds`: the devices then have a problem and are unavailable until they are empty.
        """
        deadline, pause_seconds = time.monotonic() + self._release_seconds, 0.01
        while True:
            self._refresh()
            if not self._is_listed(attempt_id, uuids):
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, 0.2)

    def memory_used_by(self, attempt_id: AttemptId, device: Device) -> int:
        """The memory of the attempt's processes on a shared device, as the driver reports it."""
        return sum(
            process.memory_mib for process in device.processes if self._attempt_of(process.pid) == attempt_id
        )

    def close(self) -> None:
        self._closing.set()

    def _read(self) -> tuple[Device, ...]:
        devices = mark_used_outside(self._gpus.read(), lambda pid: self._attempt_of(pid) is not None)
        holders = self._holders()
        return tuple(self._with_problem_if_used(device, holders.get(device.uuid, ())) for device in devices)

    def _refresh(self) -> None:
        before, self._now = self._now, self._read()
        self.update_errors()
        if _availability(before) != _availability(self._now):
            self._changed()

    def _keep_reading(self) -> None:
        while not self._closing.wait(_INTERVAL_SECONDS):
            self._refresh()

    def _follow_kernel_log(self) -> None:
        """At once: a process that caused an error may end soon."""
        while self._kernel_log.is_readable and not self._closing.is_set():
            self._kernel_log.wait(_INTERVAL_SECONDS)
            self.update_errors()

    def _with_problem_if_used(self, device: Device, holders: Collection[AttemptId]) -> Device:
        if device.problem is not None:
            return device
        for process in device.processes:
            attempt_id = self._attempt_of(process.pid)
            # The attempt of an ended process is unknown; if a job holds the device, it counts as the job's.
            if attempt_id is None or attempt_id in holders or (attempt_id == _GONE and holders):
                continue
            job = "an earlier job" if attempt_id == _GONE else f"job {attempt_id.partition('.')[0]}"
            return replace(device, problem=f"not free: process {process.pid} of {job} still uses it")
        return device

    def _is_listed(self, attempt_id: AttemptId, uuids: Sequence[str]) -> bool:
        pids = [process.pid for device in self._now if device.uuid in uuids for process in device.processes]
        return any(self._attempt_of(pid) in (_GONE, attempt_id) for pid in pids)

    def _attempt_of(self, pid: int) -> AttemptId | None:
        """The attempt of a process; None: none of ours; `_GONE`: ended, but the driver still lists it."""
        folder = Path(f"/proc/{pid}")
        try:
            if found := self._in_group.search((folder / "cgroup").read_text()):
                return found[1]
            marked = self._marked.search((folder / "environ").read_bytes())
            return marked[1].decode() if marked else None
        except (FileNotFoundError, ProcessLookupError):
            return _GONE if os.geteuid() == 0 else None  # only root can read every living process
        except OSError:
            return None


def _availability(devices: Sequence[Device]) -> list[tuple[str, bool, str | None]]:
    return [(device.uuid, device.is_available, device.problem) for device in devices]
