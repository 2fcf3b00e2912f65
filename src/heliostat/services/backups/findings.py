"""Checks the age of the newest backup, for the doctor."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from heliostat.config import Settings
from heliostat.engines.contract import Finding
from heliostat.services.backups.archive import list_backups


def check_backups(settings: Settings) -> Iterator[Finding]:
    every, folder = settings.backup.every_hours, settings.backup.folder_of(settings.home)
    if not every:
        yield Finding("backup", "ok", "Heliostat makes no backups: backup.every_hours is 0.")
        return
    newest = next(iter(list_backups(folder)), None)
    if newest is None:
        yield Finding("backup", "warning", f"There is no backup in {folder} yet.", "helio backup create")
        return
    made = newest.stat()
    age = datetime.now(UTC) - datetime.fromtimestamp(made.st_mtime, UTC)
    message = f"The newest backup, {newest}, is {age.total_seconds() / 3600:.0f} hours old."
    if age > timedelta(hours=2 * every):
        yield Finding(
            "backup", "warning", message, "See backup_failed in the log of the server; try helio backup create."
        )
    elif made.st_dev == settings.home.database.stat().st_dev:
        yield Finding("backup", "ok", f"{message} It is on the same disk as the database: set backup.folder.")
    else:
        yield Finding("backup", "ok", message)
