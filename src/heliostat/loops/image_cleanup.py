"""Removes images that containers have fetched and nobody uses any more, person by person."""

import threading
from collections.abc import Callable, Iterator

from heliostat.controller.background_loop import BackgroundLoop
from heliostat.engines.contract import ImageCleanup
from heliostat.server_log import get_logger

log = get_logger()
_EVERY_SECONDS = 3600.0


class ImageCleaner:
    """A thread of its own, as removing takes time. What a sweep that was killed has begun, the next one ends."""

    def __init__(self, sweeps: Callable[[], Iterator[ImageCleanup]]) -> None:
        self._sweeps = sweeps
        self._lock = threading.Lock()
        self._sweeping: ImageCleanup | None = None
        self._loop = BackgroundLoop("image-stores", self._look, _EVERY_SECONDS, failure="images_not_swept")
        self.start = self._loop.start

    def close(self) -> None:
        with self._lock:  # from here on none goes on
            self._loop.close(patience_seconds=0)
            if self._sweeping is not None:
                self._sweeping.stop()
        self._loop.close()

    def clean_up(self) -> int:
        """All stores, one after the other; how many images went."""
        count = 0
        for sweep in self._sweeps():
            with self._lock:
                if self._loop.is_closing:
                    sweep.stop()
                self._sweeping = sweep
            removed = sweep.wait()
            with self._lock:
                self._sweeping = None
            count += len(removed)
            for line in removed:
                log.info("image_removed", user=sweep.owner, what=line.removeprefix("removed "))
            if self._loop.is_closing:
                break
        return count

    def _look(self) -> None:
        self.clean_up()
