"""Removes code that was uploaded and has not been of use for long."""

from collections.abc import Callable
from datetime import datetime, timedelta

from heliostat.loops.loop import Loop
from heliostat.server_log import get_logger
from heliostat.store.database import Store
from heliostat.store.uploads import Uploads, needed_uploads

log = get_logger()
_EVERY_SECONDS = 3600.0


class UploadSweeper:
    """A thread of its own: nobody waits for it."""

    def __init__(self, store: Store, uploads: Uploads, days: int, now: Callable[[], datetime]) -> None:
        self._store, self._uploads, self._days, self._now = store, uploads, days, now
        loop = Loop("upload-sweeper", self._look, _EVERY_SECONDS, failure="upload_sweep_failed")
        self.start, self.close = loop.start_later, loop.close

    def sweep(self) -> int:
        """Remove what is due now; how many contents that were. What unfinished jobs need stays."""
        with self._store.read() as conn:
            needed = needed_uploads(conn)
        removed = self._uploads.sweep((self._now() - timedelta(days=self._days)).timestamp(), needed)
        if removed:
            log.info("uploads_removed", count=removed, older_than_days=self._days)
        return removed

    def _look(self) -> None:
        self.sweep()
