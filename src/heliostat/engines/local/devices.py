"""The GPUs of this machine over time: which may be handed out, and who else uses them."""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from heliostat.engines.local.gpus import NoGpus, SimulatedGpus, find_gpus, mark_used_outside
from heliostat.models import Device

_EVERY_SECONDS = 5.0


class Devices:
    """Keeps the newest reading and says when something that matters for handing out has changed."""

    def __init__(self, simulate: str | None, instance: str) -> None:
        self._gpus = find_gpus(simulate)
        self._instance = instance
        self._changed: Callable[[], None] = lambda: None
        self._closing = threading.Event()
        self._now = self._read()
        if not isinstance(self._gpus, NoGpus | SimulatedGpus):
            threading.Thread(target=self._keep_reading, name="gpu-watch", daemon=True).start()

    @property
    def note(self) -> str | None:
        return self._gpus.note

    def on_change(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def now(self) -> tuple[Device, ...]:
        return self._now

    def why_not(self, uuids: Sequence[str]) -> str | None:
        """Look again right before handing out: why these may not be, or None."""
        if not uuids:
            return None
        self._refresh()
        devices = {device.uuid: device for device in self._now}
        for uuid in uuids:
            device = devices.get(uuid)
            if device is None:
                return f"GPU {uuid} is gone"
            if not device.may_be_used:
                return f"GPU {device.index}: {device.problem or device.used_outside}"
        return None

    def close(self) -> None:
        self._closing.set()

    def _read(self) -> tuple[Device, ...]:
        return tuple(mark_used_outside(self._gpus.read(), self._is_ours))

    def _refresh(self) -> None:
        before, self._now = self._now, self._read()
        if _availability(before) != _availability(self._now):
            self._changed()

    def _keep_reading(self) -> None:
        while not self._closing.wait(_EVERY_SECONDS):
            self._refresh()

    def _is_ours(self, pid: int) -> bool:
        """Runs in an attempt of this installation, or is dead: the driver lists the dead for a while."""
        folder = Path(f"/proc/{pid}")
        try:
            if f"heliostat-{self._instance}/" in (folder / "cgroup").read_text():
                return True
            return f"HELIOSTAT_MARK={self._instance}-".encode() in (folder / "environ").read_bytes()
        except FileNotFoundError:
            return os.geteuid() == 0  # root sees every living process
        except OSError:
            return False


def _availability(devices: Sequence[Device]) -> list[tuple[str, bool, str | None]]:
    return [(device.uuid, device.may_be_used, device.problem) for device in devices]
