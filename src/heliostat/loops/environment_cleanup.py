"""Measures built environments and removes unused ones."""

import contextlib
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from heliostat.config import EnvironmentSettings, Home
from heliostat.controller.background_loop import BackgroundLoop
from heliostat.controller.environment_installation import move_to_trash
from heliostat.controller.failure_details import read_job_text
from heliostat.engines.contract import Engine
from heliostat.engines.job_variables import environment_folder
from heliostat.models import JobId
from heliostat.models.environments import INTERNAL_JOB_KINDS
from heliostat.models.quantities import parse_memory
from heliostat.models.states import TERMINAL_STATES, JobState
from heliostat.server_log import get_logger
from heliostat.services.environments.images import record_pushed_digests, remove_stale_logins
from heliostat.services.environments.lifecycle import (
    empty_trash,
    remove_unused_environments,
    select_unused_environments,
)
from heliostat.store import environments as stored
from heliostat.store.database import Store, StoreChanges, Transaction
from heliostat.store.environments import StoredEnvironment
from heliostat.store.jobs import list_unfinished_jobs
from heliostat.untrusted_folders import walk_folders

log = get_logger()

_INTERVAL_SECONDS = 3600.0
_MAX_LOCK_BYTES = 4 * 2**20
_LOCK_FILES = ("room/lock", "lock")
_MAX_ENVIRONMENTS = 100_000


class EnvironmentCleaner:
    """Runs in its own thread: measures built environments and removes unused ones."""

    def __init__(
        self, store: Store, engine: Engine, home: Home, limits: EnvironmentSettings, now: Callable[[], datetime]
    ) -> None:
        self._store, self._engine, self._home, self._limits, self._now = store, engine, home, limits, now
        self._builds: set[JobId] = set()  # unfinished
        self._loop = BackgroundLoop(
            "environment-cleanup", self.clean_up, _INTERVAL_SECONDS, failure="environment_cleanup_failed"
        )

    def start(self) -> None:
        self._store.on_commit(self._on_commit)
        with self._store.read() as conn:
            self._builds |= {job.id for job in list_unfinished_jobs(conn) if job.kind in INTERNAL_JOB_KINDS}
        self._loop.start()

    def close(self) -> None:
        """A partly removed environment is removed the next time."""
        self._loop.close(timeout_seconds=0)

    def clean_up(self) -> None:
        """Measure new environments, remove unused ones and folders without a database row."""
        with self._store.read() as conn:
            environments = stored.list_environments(conn, None, _MAX_ENVIRONMENTS)
        for entry in environments:
            if entry.environment.size_bytes is None and entry.build_state is JobState.COMPLETED:
                self._measure(entry)
        record_pushed_digests(self._store, self._engine)
        remove_stale_logins(self._store, self._home, self._now())
        self._remove_strays({entry.environment.digest for entry in environments})
        empty_trash(self._home)
        days, max_size = self._limits.keep_days, self._limits.max_size
        before = self._now() - timedelta(days=days) if days else None
        max_bytes = parse_memory(max_size) * 2**20 if max_size else None
        unused = select_unused_environments(environments, before, max_bytes)
        if removed := remove_unused_environments(self._store, self._home, unused):
            log.info("environments_removed", count=removed)

    def _on_commit(self, changes: StoreChanges) -> None:
        """Run the cleanup after the end of a build."""
        self._builds |= {job.id for job in changes.added_jobs if job.kind in INTERNAL_JOB_KINDS}
        ended = {job_id for job_id, values in changes.changed_jobs if values.get("state") in TERMINAL_STATES}
        if finished := self._builds & ended:
            self._builds -= finished
            self._loop.wake()

    def _measure(self, entry: StoredEnvironment) -> None:
        home, digest = self._home, entry.environment.digest
        size = _size(environment_folder(str(home.path), digest))
        texts = (
            read_job_text(self._engine, entry.environment.build_job, f"work/{name}", _MAX_LOCK_BYTES)
            for name in _LOCK_FILES
        )
        lock = next(filter(None, texts), None)
        self._store.write(lambda tx: stored.set_environment_lock_and_size(tx, digest, lock, size))

    def _remove_strays(self, known: set[str]) -> None:
        """Remove folders without a database row, which a crash can leave behind."""
        with contextlib.suppress(FileNotFoundError):
            for folder in os.scandir(self._home.environments / "ready"):
                if folder.name not in known:
                    self._store.write(partial(self._remove_stray, name=folder.name))

    def _remove_stray(self, tx: Transaction, name: str) -> None:
        if stored.find_environment(tx.conn, name) is None:
            move_to_trash(self._home, name)


def _size(folder: str) -> int:
    total = 0
    with contextlib.suppress(OSError):
        for inner in walk_folders(folder):
            for entry in inner.files():
                with contextlib.suppress(FileNotFoundError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total
