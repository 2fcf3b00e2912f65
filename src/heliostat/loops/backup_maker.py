"""Makes backups regularly, and removes old ones."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from heliostat.config import BackupSettings, Home
from heliostat.controller.background_loop import BackgroundLoop
from heliostat.server_log import get_logger
from heliostat.services.backups.archive import list_backups
from heliostat.services.backups.create import create_backup, remove_old_backups

log = get_logger()
_CHECK_SECONDS = 600.0


class BackupMaker:
    """The age of the newest file decides, so that restarts of the server neither delay nor repeat a backup."""

    def __init__(self, home: Home, settings: BackupSettings) -> None:
        self._home, self._settings = home, settings
        self._folder = settings.folder_of(home)
        self._loop = BackgroundLoop("backup", self.make_if_due, _CHECK_SECONDS, failure="backup_failed")
        self.start = self._loop.start_after_interval

    def close(self) -> None:
        """An interrupted backup leaves a draft, which the next one removes."""
        self._loop.close(timeout_seconds=0)

    def make_if_due(self) -> None:
        if not self._settings.every_hours or not self._is_due():
            return
        path = create_backup(self._home, self._folder, logs=self._settings.logs)
        removed = remove_old_backups(self._folder, self._settings.keep)
        log.info("backup_made", file=str(path), removed=len(removed))

    def _is_due(self) -> bool:
        newest = next(iter(list_backups(self._folder)), None)
        return newest is None or backup_age(newest) >= timedelta(hours=self._settings.every_hours)


def backup_age(path: Path) -> timedelta:
    """A time in the future, after the clock was set back, counts as old."""
    age = datetime.now(UTC) - datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return age if age >= timedelta(0) else timedelta.max
