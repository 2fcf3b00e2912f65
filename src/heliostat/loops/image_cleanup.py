"""Removes unused container images, user by user."""

import threading
from collections.abc import Callable, Iterator

from heliostat.controller.background_loop import BackgroundLoop
from heliostat.engines.contract import ImageCleanup
from heliostat.server_log import get_logger

log = get_logger()
_INTERVAL_SECONDS = 3600.0


class ImageCleaner:
    """Runs in its own thread, because removing images takes time. The next run completes an interrupted one."""

    def __init__(self, start_cleanups: Callable[[], Iterator[ImageCleanup]]) -> None:
        self._start_cleanups = start_cleanups
        self._lock = threading.Lock()
        self._running: ImageCleanup | None = None
        self._loop = BackgroundLoop(
            "image-cleanup", self._run_once, _INTERVAL_SECONDS, failure="image_cleanup_failed"
        )
        self.start = self._loop.start

    def close(self) -> None:
        with self._lock:  # no further cleanup starts from here on
            self._loop.close(timeout_seconds=0)
            if self._running is not None:
                self._running.stop()
        self._loop.close()

    def clean_up(self) -> int:
        """Clean up the images of all users, one after the other; return the number of removed images."""
        count = 0
        for cleanup in self._start_cleanups():
            with self._lock:
                if self._loop.is_closing:
                    cleanup.stop()
                self._running = cleanup
            removed = cleanup.wait()
            with self._lock:
                self._running = None
            count += len(removed)
            for line in removed:
                log.info("image_removed", user=cleanup.owner, what=line.removeprefix("removed "))
            if self._loop.is_closing:
                break
        return count

    def _run_once(self) -> None:
        self.clean_up()
