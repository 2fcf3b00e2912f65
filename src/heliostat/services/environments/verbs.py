"""Verbs on environments: build, list, look, remove. Everybody sees those they have asked for; admins see all."""

import contextlib
import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from heliostat.config import Home
from heliostat.controller.environments import ready_folder, to_trash
from heliostat.engines.job_files import LogPart
from heliostat.errors import Conflict, Forbidden, Invalid
from heliostat.models import Caller, Job
from heliostat.models.environments import (
    BUILDS,
    IMAGES,
    Environment,
    EnvironmentState,
    Software,
    state_after,
)
from heliostat.services.accounts.lookup import unix_user_and_project
from heliostat.services.context import Context
from heliostat.services.environments.orders import found, serve, take_order
from heliostat.services.logs.reading import LogRange, read_log
from heliostat.services.rights import require_admin
from heliostat.store import environments as stored
from heliostat.store import jobs as stored_jobs
from heliostat.store import people
from heliostat.store.database import Store, Transaction
from heliostat.store.environments import Kept
from heliostat.store.images import forget_image

MOST_LISTED = 1000
_MOST = 100_000


@dataclass(frozen=True, slots=True)
class Shown:
    """An environment as it is now."""

    environment: Environment
    state: EnvironmentState
    reason: str | None  # why it failed
    folder: Path | None  # where it is, if it is there
    is_needed: bool  # by a job that is not over


def build_environment(context: Context, caller: Caller, software: Software, project: str | None = None) -> Shown:
    """The one there is, or a build of it in the queue."""
    unix_user, settled = unix_user_and_project(context, caller.user, project)
    limit = context.settings.max_queued_jobs_per_user
    if context.controller.unfinished_jobs_of(caller.user.name) >= limit:
        raise Conflict(f"You have {limit} unfinished jobs.", "Wait until some are over.", code="queue_full")
    order = take_order(context, caller, software, (unix_user, settled))
    context.store.write(lambda tx: serve(context, tx, order))
    return show_environment(context, caller, order.environment.digest)


def list_environments(
    context: Context, caller: Caller, *, everybodys: bool = False, images: bool = False
) -> list[Shown]:
    """One's own, the one used last first; with `everybodys`, for admins, all. Without images, or only those."""
    if everybodys:
        require_admin(caller.user)
    with context.store.read() as conn:
        kept = stored.list_environments(conn, None if everybodys else caller.user.name, MOST_LISTED)
    return [_shown(context, one) for one in kept if (one.environment.software.kind in IMAGES) is images]


def show_environment(context: Context, caller: Caller, digest: str) -> Shown:
    """By its digest or the beginning of it."""
    return _shown(context, found(context, caller, digest))


def environment_log(context: Context, caller: Caller, digest: str, offset: int = 0) -> LogPart:
    """What its build has printed, for everybody who has asked for it."""
    build = build_of(context, found(context, caller, digest).environment)
    return LogPart(b"", 0, 0) if build is None else read_log(context, build, LogRange("stdout", offset))


def build_of(context: Context, environment: Environment) -> Job | None:
    with context.store.read() as conn:
        return stored_jobs.get_job(conn, environment.build_job)


def remove_environment(context: Context, caller: Caller, digest: str) -> bool:
    """From one's list; whether it is gone from the disk too: when nobody else has asked for it, or by an admin."""
    kept = found(context, caller, digest)
    name = kept.environment.digest

    def change(tx: Transaction) -> bool:
        if _is_needed(tx, caller, name):
            raise Conflict("A job that is not over needs this environment.", "Wait for it, or cancel it.")
        stored.forget_use(tx, name, caller.user.name)
        is_last = stored.count_askers(tx.conn, name) == 0
        gone = (is_last or caller.user.is_admin) and take_away(tx, context.settings.home, name)
        people.add_audit(
            tx, caller, "environment.remove", f"environment {name[:12]}", {"gone": gone}, context.now()
        )
        return gone

    gone = context.store.write(change)
    empty_trash(context.settings.home)
    return gone


def prune_environments(context: Context, caller: Caller, days: int) -> int:
    """Remove all that nobody has used for so many days and no job needs; for admins. How many those were."""
    require_admin(caller.user)
    if not 0 <= days <= 36_500:
        raise Invalid("days must be from 0 to 36500.", "Change it.", fields={"days": "from 0 to 36500"})
    with context.store.read() as conn:
        kept = stored.list_environments(conn, None, _MOST)
    gone = collect(context.store, context.settings.home, due(kept, context.now() - timedelta(days=days), None))
    told = {"days": days, "count": gone}
    context.store.write(
        lambda tx: people.add_audit(tx, caller, "environment.prune", "environments", told, context.now())
    )
    return gone


def check_build(tx: Transaction, caller: Caller, job: Job) -> None:
    """A build belongs to everybody who waits for it: who asked first may not take it from the others."""
    if job.kind not in BUILDS or job.environment is None or caller.user.is_admin:
        return
    others = [name for name in stored.waiters(tx.conn, job.environment, job.id) if name != caller.user.name]
    if others:
        raise Forbidden(
            f"Others wait for the environment that job {job.id} builds.", "An admin can stop it all the same."
        )


def _is_needed(tx: Transaction, caller: Caller, digest: str) -> bool:
    """By any job, as far as it would go from the disk; by one's own in any case."""
    users: Sequence[str] = stored.waiters(tx.conn, digest, 0)
    return caller.user.name in users or (bool(users) and caller.user.is_admin)


def _shown(context: Context, kept: Kept) -> Shown:
    digest, state = kept.environment.digest, state_after(kept.build_state)
    folder = ready_folder(context.settings.home, digest) if state is EnvironmentState.READY else None
    if state is EnvironmentState.READY and folder is None:
        return Shown(kept.environment, EnvironmentState.FAILED, "its folder is gone", None, kept.is_needed)
    reason = kept.build_reason if state is EnvironmentState.FAILED else None
    return Shown(kept.environment, state, reason, folder, kept.is_needed)


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


def take_away(tx: Transaction, home: Home, digest: str) -> bool:
    """Unless a job needs it. The rename is part of the change: nobody can come to need it in between."""
    kept = stored.find(tx.conn, digest)
    if kept is None or kept.is_needed:
        return False
    stored.remove(tx, digest)
    forget_image(tx, digest)
    to_trash(home, digest)
    return True


def empty_trash(home: Home) -> None:
    """By `rm`, which follows no link and leaves other file systems alone: in there is the work of people."""
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(home.environments / "trash"):
            words = ["rm", "-rf", "--one-file-system", "--", entry.path]
            subprocess.run(words, check=False, capture_output=True, stdin=subprocess.DEVNULL)
