"""Removes images that containers on this machine have fetched and nobody uses any more, person by person."""

import contextlib
import subprocess
import threading

import structlog

from heliostat.config import Settings
from heliostat.engines.folders import Refused
from heliostat.engines.local.image_stores import ImageStore, begin_sweep, image_stores, most_bytes

log = structlog.get_logger()
_EVERY_SECONDS = 3600.0
_MOST_TOLD = 100  # lines of one sweep: its owner decides what they are


class ImageStoreKeeper:
    """A thread of its own, as removing takes time. What a sweep that was killed has begun, the next one ends."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._sweeping: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run, name="image-stores", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._lock:
            self._closing.set()
            if self._sweeping is not None:
                self._sweeping.terminate()

    def sweep(self) -> int:
        """All stores, one after the other; how many images went."""
        stores = image_stores(self._settings.home.images) if self._has_limits() else ()
        return sum(self._sweep_one(store) for store in stores)

    def _has_limits(self) -> bool:
        return bool(self._settings.images_keep_days or most_bytes(self._settings))

    def _sweep_one(self, store: ImageStore) -> int:
        with self._lock:
            if self._closing.is_set():
                return 0
            self._sweeping = begin_sweep(store, self._settings)
        with self._sweeping as process:
            told = process.communicate()[0].splitlines()
        with self._lock:
            self._sweeping = None
        for line in told[:_MOST_TOLD]:
            words = "".join(sign for sign in line[:600] if sign.isprintable())
            log.info("image_removed", user=store.owner.name, what=words.removeprefix("removed "))
        return len(told)

    def _run(self) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(FileNotFoundError):  # no podman, no setpriv
                try:
                    self.sweep()
                except (OSError, Refused, subprocess.SubprocessError):
                    log.exception("images_not_swept")
            self._closing.wait(_EVERY_SECONDS)
