"""Removes images that containers on this machine have fetched and nobody uses any more, person by person."""

import subprocess
import threading

from heliostat.config import ContainerSettings, Home
from heliostat.engines.local.image_stores import ImageStore, begin_sweep, end_sweep, image_stores, most_bytes
from heliostat.loops.loop import Loop
from heliostat.server_log import get_logger

log = get_logger()
_EVERY_SECONDS = 3600.0


class ImageStoreKeeper:
    """A thread of its own, as removing takes time. What a sweep that was killed has begun, the next one ends."""

    def __init__(self, home: Home, containers: ContainerSettings) -> None:
        self._home, self._containers = home, containers
        self._lock = threading.Lock()
        self._sweeping: subprocess.Popen[bytes] | None = None
        self._loop = Loop("image-stores", self._look, _EVERY_SECONDS, failure="images_not_swept")
        self.start = self._loop.start

    def close(self) -> None:
        with self._lock:  # from here on none begins
            self._loop.close(patience_seconds=0)
            if self._sweeping is not None:
                self._sweeping.terminate()
        self._loop.close()

    def sweep(self) -> int:
        """All stores, one after the other; how many images went."""
        stores = image_stores(self._home.images) if self._has_limits() else ()
        return sum(self._sweep_one(store) for store in stores)

    def _has_limits(self) -> bool:
        return bool(self._containers.keep_days or most_bytes(self._containers))

    def _sweep_one(self, store: ImageStore) -> int:
        with self._lock:
            if self._loop.is_closing:
                return 0
            process = self._sweeping = begin_sweep(store, self._home, self._containers)
        told = end_sweep(store, process)
        with self._lock:
            self._sweeping = None
        for line in told:
            log.info("image_removed", user=store.owner.name, what=line.removeprefix("removed "))
        return len(told)

    def _look(self) -> None:
        self.sweep()
