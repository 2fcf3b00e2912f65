"""Measures environments that were built, and removes those that are due."""

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

log = get_logger()

_EVERY_SECONDS = 3600.0
_MOST_LOCK_BYTES = 4 * 2**20
_LOCKS = ("room/lock", "lock")
_MOST = 100_000  # environments looked at in one go


class EnvironmentCleaner:
    """A thread of its own: measures what was built, and removes what is due."""

    def __init__(
        self, store: Store, engine: Engine, home: Home, limits: EnvironmentSettings, now: Callable[[], datetime]
    ) -> None:
        self._store, self._engine, self._home, self._limits, self._now = store, engine, home, limits, now
        self._builds: set[JobId] = set()  # that are not over
        self._loop = BackgroundLoop(
            "environments", self.clean_up, _EVERY_SECONDS, failure="environments_not_tidied"
        )

    def start(self) -> None:
        self._store.on_commit(self._on_commit)
        with self._store.read() as conn:
            self._builds |= {job.id for job in list_unfinished_jobs(conn) if job.kind in INTERNAL_JOB_KINDS}
        self._loop.start()

    def close(self) -> None:
        """What is half removed is removed another time."""
        self._loop.close(patience_seconds=0)

    def clean_up(self) -> None:
        """Measure what is not measured yet, remove what is due and what belongs to nothing."""
        with self._store.read() as conn:
            kept = stored.list_environments(conn, None, _MOST)
        for one in kept:
            if one.environment.size_bytes is None and one.build_state is JobState.COMPLETED:
                self._measure(one)
        record_pushed_digests(self._store, self._engine)
        remove_stale_logins(self._store, self._home, self._now())
        self._remove_strays({one.environment.digest for one in kept})
        empty_trash(self._home)
        days, most = self._limits.keep_days, self._limits.max_size
        before = self._now() - timedelta(days=days) if days else None
        going = select_unused_environments(kept, before, parse_memory(most) * 2**20 if most else None)
        if gone := remove_unused_environments(self._store, self._home, going):
            log.info("environments_removed", count=gone)

    def _on_commit(self, changes: StoreChanges) -> None:
        """The end of a build is a reason to look."""
        self._builds |= {job.id for job in changes.added_jobs if job.kind in INTERNAL_JOB_KINDS}
        ended = {job_id for job_id, values in changes.changed_jobs if values.get("state") in TERMINAL_STATES}
        if over := self._builds & ended:
            self._builds -= over
            self._loop.wake()

    def _measure(self, one: StoredEnvironment) -> None:
        home, digest = self._home, one.environment.digest
        size = _size(environment_folder(str(home.path), digest))
        places = (
            read_job_text(self._engine, one.environment.build_job, f"work/{name}", _MOST_LOCK_BYTES)
            for name in _LOCKS
        )
        lock = next(filter(None, places), None)
        self._store.write(lambda tx: stored.set_environment_lock_and_size(tx, digest, lock, size))

    def _remove_strays(self, known: set[str]) -> None:
        """What a crash between two steps has left: folders no row knows of, now nor in a moment."""
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._home.environments / "ready"):
                if entry.name not in known:
                    self._store.write(partial(self._remove_stray, name=entry.name))

    def _remove_stray(self, tx: Transaction, name: str) -> None:
        if stored.find_environment(tx.conn, name) is None:
            move_to_trash(self._home, name)


def _size(folder: str) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(f"{path}/{name}").st_blocks * 512
    return total
