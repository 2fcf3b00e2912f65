"""The GPUs of this machine over time: which may be handed out, and who else uses them."""

import os
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from heliostat.engines.local.gpus import NoGpus, SimulatedGpus, find_gpus, mark_used_outside
from heliostat.models import AttemptId, Device

_EVERY_SECONDS = 5.0
_GONE = "gone"

ListAttemptsByDevice = Callable[[], Mapping[str, Collection[AttemptId]]]
"""For each device the attempts that run there."""


class GpuMonitor:
    """Keeps the newest reading and says when something that matters for handing out has changed.

    A device goes to the next job only when it is proven empty: as long as the driver shows anybody there but the
    attempts it was given to, it may not be used, and says why.
    """

    def __init__(
        self,
        simulate: str | None,
        instance: str,
        holders: ListAttemptsByDevice = dict,
        *,
        patience_seconds: float = 2.0,
    ) -> None:
        """`patience_seconds`: how long a device may still show an attempt that has ended."""
        self._patience_seconds = patience_seconds
        self._gpus = find_gpus(simulate)
        self._holders = holders
        self._in_group = re.compile(rf"heliostat-{instance}/(\d+\.\d+)")
        self._marked = re.compile(rf"(?:^|\0)HELIOSTAT_MARK={instance}-(\d+\.\d+)(?:\0|$)".encode())
        self._changed: Callable[[], None] = lambda: None
        self._closing = threading.Event()
        self.are_real = not isinstance(self._gpus, NoGpus | SimulatedGpus)
        self._now = self._read()
        if self.are_real:
            threading.Thread(target=self._keep_reading, name="gpu-watch", daemon=True).start()

    @property
    def note(self) -> str | None:
        return self._gpus.note

    def on_change(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def current_devices(self) -> tuple[Device, ...]:
        return self._now

    def memory_mib(self, uuids: Sequence[str]) -> int | None:
        """Of the first of these."""
        return next((device.memory_mib for device in self._now if device.uuid in uuids[:1]), None)

    def device_files(self, uuids: Sequence[str]) -> tuple[str, ...] | None:
        """Through which programs use these; None: they are made up."""
        if not self.are_real:
            return None
        return tuple(f"/dev/nvidia{device.index}" for device in self._now if device.uuid in uuids)

    def unavailable_reason(self, uuids: Sequence[str]) -> str | None:
        """Look again right before handing out: why these may not be, or None."""
        if not uuids:
            return None
        self._refresh()
        devices = {device.uuid: device for device in self._now}
        for uuid in uuids:
            device = devices.get(uuid)
            if device is None:
                return f"GPU {uuid} is gone"
            if not device.is_available:
                return f"GPU {device.index}: {device.problem or device.used_outside}"
        return None

    def wait_until_released(self, attempt_id: AttemptId, uuids: Sequence[str]) -> bool:
        """Whether the driver shows nothing of this attempt, which is over, on these any more.

        Waits a little for that. If it is in vain, the devices say so and stay out of use until it is true.
        """
        deadline, pause_seconds = time.monotonic() + self._patience_seconds, 0.01
        while True:
            self._refresh()
            if not self._lingers(attempt_id, uuids):
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, 0.2)

    def memory_used_by(self, attempt_id: AttemptId, device: Device) -> int:
        """Of a device that several share, what the driver says of its processes."""
        return sum(one.memory_mib for one in device.processes if self._attempt_of(one.pid) == attempt_id)

    def close(self) -> None:
        self._closing.set()

    def _read(self) -> tuple[Device, ...]:
        devices = mark_used_outside(self._gpus.read(), lambda pid: self._attempt_of(pid) is not None)
        holders = self._holders()
        return tuple(self._marked_if_not_empty(device, holders.get(device.uuid, ())) for device in devices)

    def _refresh(self) -> None:
        before, self._now = self._now, self._read()
        if _availability(before) != _availability(self._now):
            self._changed()

    def _keep_reading(self) -> None:
        while not self._closing.wait(_EVERY_SECONDS):
            self._refresh()

    def _marked_if_not_empty(self, device: Device, holders: Collection[AttemptId]) -> Device:
        if device.problem is not None:
            return device
        for process in device.processes:
            attempt_id = self._attempt_of(process.pid)
            # The dead have no name; where a job runs, they are taken for its own.
            if attempt_id is None or attempt_id in holders or (attempt_id == _GONE and holders):
                continue
            whose = "an earlier job" if attempt_id == _GONE else f"job {attempt_id.partition('.')[0]}"
            return replace(device, problem=f"not empty: process {process.pid} of {whose} has not left it")
        return device

    def _lingers(self, attempt_id: AttemptId, uuids: Sequence[str]) -> bool:
        pids = [process.pid for device in self._now if device.uuid in uuids for process in device.processes]
        return any(self._attempt_of(pid) in (_GONE, attempt_id) for pid in pids)

    def _attempt_of(self, pid: int) -> AttemptId | None:
        """The attempt of ours it runs in; None: a stranger. The driver lists the dead for a while: `gone`."""
        folder = Path(f"/proc/{pid}")
        try:
            if found := self._in_group.search((folder / "cgroup").read_text()):
                return found[1]
            marked = self._marked.search((folder / "environ").read_bytes())
            return marked[1].decode() if marked else None
        except (FileNotFoundError, ProcessLookupError):
            return _GONE if os.geteuid() == 0 else None  # root sees every living process
        except OSError:
            return None


def _availability(devices: Sequence[Device]) -> list[tuple[str, bool, str | None]]:
    return [(device.uuid, device.is_available, device.problem) for device in devices]
