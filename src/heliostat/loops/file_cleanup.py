"""Removes what was over long ago, if the admin wants that: folders of jobs, files of workflows, uploaded code."""

import os
import subprocess
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

from heliostat.controller.background_loop import BackgroundLoop
from heliostat.server_log import get_logger
from heliostat.store.database import Store
from heliostat.store.jobs import find_jobs_ended_before
from heliostat.store.uploads import UploadStore, list_needed_uploads
from heliostat.store.workflows import find_workflows_ended_before

log = get_logger()

_EVERY_SECONDS = 3600.0
_MANY = 500
_PATIENCE_SECONDS = 3600.0  # with one folder


class JobFolderCleaner:
    """Of folders of jobs, whose records stay. A thread of its own: to remove a million files takes long."""

    def __init__(self, store: Store, folder: Path, days: int, now: Callable[[], datetime]) -> None:
        self._store, self._folder, self._days, self._now = store, folder, days, now
        self._loop = BackgroundLoop("sweeper", self._look, _EVERY_SECONDS, failure="sweep_failed")

    def start(self) -> None:
        """Without a number of days everything is kept."""
        if self._days > 0:
            self._loop.start()

    def close(self) -> None:
        """What is half removed is removed another time."""
        self._loop.close(patience_seconds=0)

    def clean_up(self) -> int:
        """Remove what is due now; how many folders that were."""
        before = self._now() - timedelta(days=self._days)
        removed = 0
        for number in self._due(before):
            if self._loop.is_closing:
                break
            removed += _remove(self._folder / str(number))
        if removed:
            log.info("job_folders_removed", count=removed, older_than_days=self._days)
        return removed

    def _look(self) -> None:
        self.clean_up()

    def _due(self, before: datetime) -> Iterator[int]:
        """Never the highest: it says which numbers were given, should the database be restored from a backup."""
        numbers = sorted(list_numbered_folders(self._folder))[:-1]
        for start in range(0, len(numbers), _MANY):
            with self._store.read() as conn:
                over = find_jobs_ended_before(conn, numbers[start : start + _MANY], before)
            yield from sorted(over)


def list_numbered_folders(folder: Path) -> Iterator[int]:
    """Of the folders there that have one for a name."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.isdecimal() and entry.is_dir(follow_symlinks=False):
                yield int(entry.name)


def _remove(folder: Path) -> bool:
    """By `rm`, which follows no link, leaves other file systems alone and is not defeated by folders nested ten
    thousand deep: what is in there is the work of people."""
    try:
        done = subprocess.run(
            ["rm", "-rf", "--one-file-system", "--", str(folder)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("job_folder_not_removed", folder=str(folder), error=str(error))
        return False
    if done.returncode != 0:
        error_text = done.stderr.decode("utf-8", "replace")[:300]
        log.warning("job_folder_not_removed", folder=str(folder), error=error_text)
    return done.returncode == 0


class WorkflowFileCleaner(JobFolderCleaner):
    """Of what workflows have handed on as files."""

    def _due(self, before: datetime) -> Iterator[int]:
        if not self._folder.is_dir():
            return
        numbers = sorted(list_numbered_folders(self._folder))
        for start in range(0, len(numbers), _MANY):
            with self._store.read() as conn:
                over = find_workflows_ended_before(conn, numbers[start : start + _MANY], before.timestamp())
            yield from sorted(over)


class UploadCleaner:
    """Of code that was uploaded and has not been of use for long."""

    def __init__(self, store: Store, uploads: UploadStore, days: int, now: Callable[[], datetime]) -> None:
        self._store, self._uploads, self._days, self._now = store, uploads, days, now
        loop = BackgroundLoop("upload-sweeper", self._look, _EVERY_SECONDS, failure="upload_sweep_failed")
        self.start, self.close = loop.start_after_interval, loop.close

    def clean_up(self) -> int:
        """Remove what is due now; how many contents that were. What unfinished jobs need stays."""
        with self._store.read() as conn:
            needed = list_needed_uploads(conn)
        removed = self._uploads.remove_unused((self._now() - timedelta(days=self._days)).timestamp(), needed)
        if removed:
            log.info("uploads_removed", count=removed, older_than_days=self._days)
        return removed

    def _look(self) -> None:
        self.clean_up()
