"""Measures environments that were built, and removes those that are due."""

import contextlib
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from heliostat.config import Settings
from heliostat.controller.environments import to_trash
from heliostat.controller.leftovers import left_by
from heliostat.controller.loop import Loop
from heliostat.engines.contract import Engine
from heliostat.engines.environment import environment_folder
from heliostat.models import JobId
from heliostat.models.environments import OUR_SCRIPTS
from heliostat.models.quantities import parse_memory
from heliostat.models.states import TERMINAL, JobState
from heliostat.server_log import get_logger
from heliostat.services.environments.images import note_pushes, sweep_logins
from heliostat.services.environments.verbs import collect, due, empty_trash
from heliostat.store import environments as stored
from heliostat.store.database import Changes, Store, Transaction
from heliostat.store.environments import Kept
from heliostat.store.jobs import unfinished_jobs

log = get_logger()

_EVERY_SECONDS = 3600.0
_MOST_LOCK_BYTES = 4 * 2**20
_LOCKS = ("room/lock", "lock")
_MOST = 100_000  # environments looked at in one go


class EnvironmentKeeper:
    """A thread of its own: measures what was built, and removes what is due."""

    def __init__(self, store: Store, engine: Engine, settings: Settings, now: Callable[[], datetime]) -> None:
        self._store, self._engine, self._settings, self._now = store, engine, settings, now
        self._builds: set[JobId] = set()  # that are not over
        self._loop = Loop("environments", self.tidy, _EVERY_SECONDS, failure="environments_not_tidied")

    def start(self) -> None:
        self._store.on_commit(self._on_commit)
        with self._store.read() as conn:
            self._builds |= {job.id for job in unfinished_jobs(conn) if job.kind in OUR_SCRIPTS}
        self._loop.start()

    def close(self) -> None:
        """What is half removed is removed another time."""
        self._loop.close(patience_seconds=0)

    def tidy(self) -> None:
        """Measure what is not measured yet, remove what is due and what belongs to nothing."""
        with self._store.read() as conn:
            kept = stored.list_environments(conn, None, _MOST)
        for one in kept:
            if one.environment.size_bytes is None and one.build_state is JobState.COMPLETED:
                self._measure(one)
        note_pushes(self._store, self._engine)
        sweep_logins(self._store, self._settings.home, self._now())
        self._remove_strays({one.environment.digest for one in kept})
        empty_trash(self._settings.home)
        days, most = self._settings.environments_keep_days, self._settings.environments_max_size
        before = self._now() - timedelta(days=days) if days else None
        going = due(kept, before, parse_memory(most) * 2**20 if most else None)
        if gone := collect(self._store, self._settings.home, going):
            log.info("environments_removed", count=gone)

    def _on_commit(self, changes: Changes) -> None:
        """The end of a build is a reason to look."""
        self._builds |= {job.id for job in changes.added if job.kind in OUR_SCRIPTS}
        ended = {job_id for job_id, values in changes.moved if values.get("state") in TERMINAL}
        if over := self._builds & ended:
            self._builds -= over
            self._loop.wake()

    def _measure(self, one: Kept) -> None:
        home, digest = self._settings.home, one.environment.digest
        size = _size(environment_folder(str(home.path), digest))
        places = (
            left_by(self._engine, one.environment.build_job, f"work/{name}", _MOST_LOCK_BYTES) for name in _LOCKS
        )
        lock = next(filter(None, places), None)
        self._store.write(lambda tx: stored.measured(tx, digest, lock, size))

    def _remove_strays(self, known: set[str]) -> None:
        """What a crash between two steps has left: folders no row knows of, now nor in a moment."""
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._settings.home.environments / "ready"):
                if entry.name not in known:
                    self._store.write(partial(self._remove_stray, name=entry.name))

    def _remove_stray(self, tx: Transaction, name: str) -> None:
        if stored.find(tx.conn, name) is None:
            to_trash(self._settings.home, name)


def _size(folder: str) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(f"{path}/{name}").st_blocks * 512
    return total
