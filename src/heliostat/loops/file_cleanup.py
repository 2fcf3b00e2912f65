"""Removes old files: folders of jobs, files of workflows, uploaded code."""

import os
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

from heliostat.controller.background_loop import BackgroundLoop
from heliostat.server_log import get_logger
from heliostat.store.database import Store
from heliostat.store.jobs import find_jobs_ended_before
from heliostat.store.uploads import UploadStore, list_needed_uploads
from heliostat.store.workflows import find_workflows_ended_before
from heliostat.untrusted_folders import remove_folder

log = get_logger()

_INTERVAL_SECONDS = 3600.0
_BATCH_SIZE = 500


class JobFolderCleaner:
    """Removes folders of old jobs; their database records stay. In its own thread: a million files take long."""

    def __init__(self, store: Store, folder: Path, days: int, now: Callable[[], datetime]) -> None:
        self._store, self._folder, self._days, self._now = store, folder, days, now
        self._loop = BackgroundLoop(
            "file-cleanup", self._run_once, _INTERVAL_SECONDS, failure="file_cleanup_failed"
        )

    def start(self) -> None:
        """With 0 days everything is kept."""
        if self._days > 0:
            self._loop.start()

    def close(self) -> None:
        """A partly removed folder is removed the next time."""
        self._loop.close(timeout_seconds=0)

    def clean_up(self) -> int:
        """Remove what is due now; return the number of folders."""
        before = self._now() - timedelta(days=self._days)
        removed = 0
        for number in self._due(before):
            if self._loop.is_closing:
                break
            removed += _remove(f"{self._folder}/{number}")
        if removed:
            log.info("job_folders_removed", count=removed, older_than_days=self._days)
        return removed

    def _run_once(self) -> None:
        self.clean_up()

    def _due(self, before: datetime) -> Iterator[int]:
        """Never the highest number: it marks the numbers in use if the database is restored from a backup."""
        numbers = sorted(list_numbered_folders(self._folder))[:-1]
        for start in range(0, len(numbers), _BATCH_SIZE):
            with self._store.read() as conn:
                ended = find_jobs_ended_before(conn, numbers[start : start + _BATCH_SIZE], before)
            yield from sorted(ended)


def list_numbered_folders(folder: Path) -> Iterator[int]:
    """Numbers that are names of folders."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.isdecimal() and entry.is_dir(follow_symlinks=False):
                yield int(entry.name)


def _remove(folder: str) -> bool:
    try:
        remove_folder(folder)
    except OSError as error:
        log.warning("job_folder_not_removed", folder=folder, error=str(error))
        return False
    return True


class WorkflowFileCleaner(JobFolderCleaner):
    """Removes files that jobs of old workflows passed on."""

    def _due(self, before: datetime) -> Iterator[int]:
        if not self._folder.is_dir():
            return
        numbers = sorted(list_numbered_folders(self._folder))
        for start in range(0, len(numbers), _BATCH_SIZE):
            with self._store.read() as conn:
                ended = find_workflows_ended_before(conn, numbers[start : start + _BATCH_SIZE], before.timestamp())
            yield from sorted(ended)


class UploadCleaner:
    """Removes uploaded code that has not been used for long."""

    def __init__(self, store: Store, uploads: UploadStore, days: int, now: Callable[[], datetime]) -> None:
        self._store, self._uploads, self._days, self._now = store, uploads, days, now
        loop = BackgroundLoop("upload-cleanup", self._run_once, _INTERVAL_SECONDS, failure="upload_cleanup_failed")
        self.start, self.close = loop.start_after_interval, loop.close

    def clean_up(self) -> int:
        """Remove what is due now; return the number of files. Code of unfinished jobs stays."""
        with self._store.read() as conn:
            needed = list_needed_uploads(conn)
        removed = self._uploads.remove_unused((self._now() - timedelta(days=self._days)).timestamp(), needed)
        if removed:
            log.info("uploads_removed", count=removed, older_than_days=self._days)
        return removed

    def _run_once(self) -> None:
        self.clean_up()
