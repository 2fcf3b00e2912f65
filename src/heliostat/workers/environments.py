"""Environments on disk: taken over when their build has ended, measured, and removed when nobody needs them.

`environments/ready/DIGEST` is there or not there, never half: it comes by a rename, and leaves by one. What a
build that was killed has left lies in the folder of that job, and is nobody's environment.
"""

import contextlib
import errno
import os
import stat
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from heliostat.config import Home, Settings
from heliostat.engines.environment import environment_folder
from heliostat.engines.folders import JobFolder
from heliostat.engines.peoples_files import open_below
from heliostat.models import Cause, Ended, Job
from heliostat.models.environments import CANNOT_BUILD, IMAGE_BUILD, OUR_SCRIPTS, PUSH
from heliostat.models.images import rules_words
from heliostat.models.quantities import parse_memory
from heliostat.models.states import TERMINAL, JobState
from heliostat.server_log import get_logger
from heliostat.store import environments as stored
from heliostat.store.database import Changes, Store, Transaction
from heliostat.store.environments import Kept
from heliostat.store.images import forget_image
from heliostat.workers.images import note_pushes, settle_push, sweep_logins
from heliostat.workers.leftovers import last_words, read_safely
from heliostat.workers.loop import Loop

log = get_logger()

_EVERY_SECONDS = 3600.0
_MOST_LOCK_BYTES = 4 * 2**20
_MOST = 100_000  # environments looked at in one go


class CannotTakeOver(Exception):
    """What the build has left is no environment; says why."""


def settle_build(settings: Settings, job: Job, seen: Ended) -> Ended:
    """What the end of a build means, once its result is taken over; of other jobs, what it says. Repeatable."""
    if job.kind not in OUR_SCRIPTS or job.environment is None:
        return seen
    work = f"{JobFolder.of(settings.home.jobs, job.id).path}/work"
    if job.kind == PUSH:
        return settle_push(work, seen)
    if seen.cause is not Cause.EXITED or seen.exit_code != 0:
        _clear(settings.home, job, work)
    if seen.cause is not Cause.EXITED:
        return seen
    if seen.exit_code != 0:
        return replace(seen, detail=CANNOT_BUILD + _why(job, work, seen.exit_code))
    try:
        _take_over(settings, job.environment, work, is_shared=job.unix_user == settings.environments_builder)
    except (OSError, subprocess.SubprocessError, CannotTakeOver) as error:
        log.warning("environment_not_taken_over", environment=job.environment, error=str(error))
        return replace(seen, exit_code=1, detail=f"{CANNOT_BUILD}{error}")
    return seen


def _why(job: Job, work: str, exit_code: int | None) -> str:
    said = last_words(work)
    return (job.kind == IMAGE_BUILD and rules_words(said)) or said or f"exit code {exit_code}"


def _clear(home: Home, job: Job, work: str) -> None:
    """What a build that has not come to its end leaves is large, and nobody's."""
    make_room(home)
    with contextlib.suppress(OSError):
        os.rename(f"{work}/room", home.environments / "trash" / f"{job.attempt_id}.{os.urandom(4).hex()}")


def _take_over(settings: Settings, digest: str, work: str, *, is_shared: bool) -> None:
    """Out of a folder whose owner may still swap what is in it: it is looked at once it is ours alone."""
    make_room(settings.home)
    ready, taking = (
        environment_folder(str(settings.home.path), digest),
        settings.home.environments / "taking" / digest,
    )
    if not os.path.lexists(taking):
        try:
            _rename_out(work, taking)
        except FileNotFoundError:
            if os.path.isdir(ready):
                return  # it was taken over before a crash
            raise CannotTakeOver("the build has left nothing") from None
    found = os.lstat(taking)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.lstat(work).st_uid, os.geteuid()):
        os.rename(taking, settings.home.environments / "trash" / f"{digest}.{os.urandom(4).hex()}")
        raise CannotTakeOver("the build has left no folder of its own")
    if is_shared:
        _make_everybodys(str(taking))
    else:
        os.chmod(taking, 0o700)  # everybody can read its name among the words of its owner's processes
    if os.path.lexists(ready):
        _to_trash(settings.home, digest)
    os.rename(taking, ready)


def _rename_out(work: str, to: Path) -> None:
    try:
        room = open_below(work, "room")
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CannotTakeOver("the build has left a link") from None
        raise
    try:
        os.rename("env", to, src_dir_fd=room)
    except NotADirectoryError:
        raise CannotTakeOver("the build has left no folder") from None
    finally:
        os.close(room)


def _make_everybodys(folder: str) -> None:
    """Readable by all, changeable by none but us. Its builder is gone, with every process that it had."""
    for words in (
        ["chmod", "-R", "u=rwX,go=rX", folder],
        ["chown", "-hR", f"{os.geteuid()}:{os.getegid()}", folder],
    ):
        subprocess.run(words, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=600)


def make_room(home: Home) -> None:
    """The folders of the installation: people pass through to what they know the name of."""
    for folder in (home.environments, home.environments / "ready", home.environments / "tools"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o711)
    for folder in (home.environments / "taking", home.environments / "trash"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)


def take_away(tx: Transaction, home: Home, digest: str) -> bool:
    """Unless a job needs it. The rename is part of the change: nobody can come to need it in between."""
    kept = stored.find(tx.conn, digest)
    if kept is None or kept.is_needed:
        return False
    stored.remove(tx, digest)
    forget_image(tx, digest)
    _to_trash(home, digest)
    return True


def _to_trash(home: Home, digest: str) -> None:
    make_room(home)
    trash = home.environments / "trash"
    with contextlib.suppress(FileNotFoundError):
        os.rename(environment_folder(str(home.path), digest), trash / f"{digest}.{os.urandom(4).hex()}")


def empty_trash(home: Home) -> None:
    """By `rm`, which follows no link and leaves other file systems alone: in there is the work of people."""
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(home.environments / "trash"):
            words = ["rm", "-rf", "--one-file-system", "--", entry.path]
            subprocess.run(words, check=False, capture_output=True, stdin=subprocess.DEVNULL)


def due(kept: Sequence[Kept], before: datetime | None, most_bytes: int | None) -> list[str]:
    """Digests of those that should go, never one that is needed: not used since, or used longest ago while all are
    too large. Pure."""
    spare = sorted((one for one in kept if not one.is_needed), key=_last_use)
    old = [one for one in spare if before is not None and _last_use(one) < before]
    size = sum(one.environment.size_bytes or 0 for one in kept) - sum(
        one.environment.size_bytes or 0 for one in old
    )
    going = [one.environment.digest for one in old]
    for one in spare[len(old) :] if most_bytes is not None else ():
        if size <= (most_bytes or 0):
            break
        going.append(one.environment.digest)
        size -= one.environment.size_bytes or 0
    return going


def _last_use(one: Kept) -> datetime:
    return one.environment.used_at or one.environment.created_at


def collect(store: Store, home: Home, digests: Iterable[str]) -> int:
    """Remove these, as far as nobody needs them now; how many those were."""
    gone = sum(store.write(partial(take_away, home=home, digest=digest)) for digest in digests)
    empty_trash(home)
    return gone


class EnvironmentKeeper:
    """A thread of its own: measures what was built, and removes what is due."""

    def __init__(self, store: Store, settings: Settings, now: Callable[[], datetime]) -> None:
        self._store, self._settings, self._now = store, settings, now
        self._expects_end = False  # of a build, to be recorded in a moment
        self._loop = Loop("environments", self.tidy, _EVERY_SECONDS, failure="environments_not_tidied")

    def start(self) -> None:
        self._store.on_commit(self._on_commit)
        self._loop.start()

    def close(self) -> None:
        """What is half removed is removed another time."""
        self._loop.close(patience_seconds=0)

    def settle(self, job: Job, seen: Ended) -> Ended:
        """For the controller, before it records an end."""
        settled = settle_build(self._settings, job, seen)
        if job.kind in OUR_SCRIPTS:
            self._expects_end = True
        return settled

    def tidy(self) -> None:
        """Measure what is not measured yet, remove what is due and what belongs to nothing."""
        with self._store.read() as conn:
            kept = stored.list_environments(conn, None, _MOST)
        for one in kept:
            if one.environment.size_bytes is None and one.build_state is JobState.COMPLETED:
                self._measure(one)
        note_pushes(self._store, self._settings.home)
        sweep_logins(self._store, self._settings.home, self._now())
        self._remove_strays({one.environment.digest for one in kept})
        empty_trash(self._settings.home)
        days, most = self._settings.environments_keep_days, self._settings.environments_max_size
        before = self._now() - timedelta(days=days) if days else None
        going = due(kept, before, parse_memory(most) * 2**20 if most else None)
        if gone := collect(self._store, self._settings.home, going):
            log.info("environments_removed", count=gone)

    def _on_commit(self, changes: Changes) -> None:
        if self._expects_end and any(values.get("state") in TERMINAL for _, values in changes.moved):
            self._expects_end = False
            self._loop.wake()

    def _measure(self, one: Kept) -> None:
        home, digest = self._settings.home, one.environment.digest
        size = _size(environment_folder(str(home.path), digest))
        work = f"{JobFolder.of(home.jobs, one.environment.build_job).path}/work"
        lock = read_safely(work, _MOST_LOCK_BYTES, "room", "lock") or read_safely(work, _MOST_LOCK_BYTES, "lock")
        self._store.write(lambda tx: stored.measured(tx, digest, lock, size))

    def _remove_strays(self, known: set[str]) -> None:
        """What a crash between two steps has left: folders no row knows of, now nor in a moment."""
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._settings.home.environments / "ready"):
                if entry.name not in known:
                    self._store.write(partial(self._remove_stray, name=entry.name))

    def _remove_stray(self, tx: Transaction, name: str) -> None:
        if stored.find(tx.conn, name) is None:
            _to_trash(self._settings.home, name)


def _size(folder: str) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(f"{path}/{name}").st_blocks * 512
    return total


def ready_folder(home: Home, digest: str) -> Path | None:
    """Where it is; None: it is not there."""
    folder = Path(environment_folder(str(home.path), digest))
    return folder if folder.is_dir() else None
