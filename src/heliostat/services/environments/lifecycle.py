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
from heliostat.controller.environment_installation import find_environment_folder, move_to_trash
from heliostat.engines.job_files import LogChunk
from heliostat.errors import Conflict, Forbidden, Invalid
from heliostat.models import Caller, Job
from heliostat.models.environments import (
    BUILD_JOB_KINDS,
    IMAGE_ENVIRONMENT_KINDS,
    Environment,
    EnvironmentSpec,
    EnvironmentState,
    environment_state,
)
from heliostat.services.accounts.lookup import require_unix_user_and_project
from heliostat.services.context import Context
from heliostat.services.environments.requests import (
    prepare_environment_request,
    provide_environment,
    require_environment,
)
from heliostat.services.logs.reader import LogRange, read_log
from heliostat.services.permissions import require_admin
from heliostat.store import accounts
from heliostat.store import environments as stored
from heliostat.store import jobs as stored_jobs
from heliostat.store.database import Store, Transaction
from heliostat.store.environments import StoredEnvironment
from heliostat.store.images import remove_image

MAX_LISTED = 1000
_MOST = 100_000


@dataclass(frozen=True, slots=True)
class EnvironmentView:
    """An environment as it is now."""

    environment: Environment
    state: EnvironmentState
    reason: str | None  # why it failed
    folder: Path | None  # where it is, if it is there
    is_in_use: bool  # by a job that is not over


def build_environment(
    context: Context, caller: Caller, software: EnvironmentSpec, project: str | None = None
) -> EnvironmentView:
    """The one there is, or a build of it in the queue."""
    unix_user, settled = require_unix_user_and_project(context, caller.user, project)
    limit = context.settings.queue.max_jobs_per_user
    if context.controller.count_unfinished_jobs(caller.user.name) >= limit:
        raise Conflict(f"You have {limit} unfinished jobs.", "Wait until some are over.", code="queue_full")
    order = prepare_environment_request(context, caller, software, (unix_user, settled))
    context.store.write(lambda tx: provide_environment(context, tx, order))
    return show_environment(context, caller, order.environment.digest)


def list_environments(
    context: Context, caller: Caller, *, all_users: bool = False, images: bool = False
) -> list[EnvironmentView]:
    """One's own, the one used last first; with `all_users`, for admins, all. Without images, or only those."""
    if all_users:
        require_admin(caller.user)
    with context.store.read() as conn:
        kept = stored.list_environments(conn, None if all_users else caller.user.name, MAX_LISTED)
    return [
        _shown(context, one) for one in kept if (one.environment.spec.kind in IMAGE_ENVIRONMENT_KINDS) is images
    ]


def show_environment(context: Context, caller: Caller, digest: str) -> EnvironmentView:
    """By its digest or the beginning of it."""
    return _shown(context, require_environment(context, caller, digest))


def read_build_log(context: Context, caller: Caller, digest: str, offset: int = 0) -> LogChunk:
    """What its build has printed, for everybody who has asked for it."""
    build = get_build_job(context, require_environment(context, caller, digest).environment)
    return LogChunk(b"", 0, 0) if build is None else read_log(context, build, LogRange("stdout", offset))


def get_build_job(context: Context, environment: Environment) -> Job | None:
    with context.store.read() as conn:
        return stored_jobs.get_job(conn, environment.build_job)


def remove_environment(context: Context, caller: Caller, digest: str) -> bool:
    """From one's list; whether it is gone from the disk too: when nobody else has asked for it, or by an admin."""
    kept = require_environment(context, caller, digest)
    name = kept.environment.digest

    def change(tx: Transaction) -> bool:
        if _is_needed(tx, caller, name):
            raise Conflict("A job that is not over needs this environment.", "Wait for it, or cancel it.")
        stored.remove_environment_use(tx, name, caller.user.name)
        is_last = stored.count_requesting_users(tx.conn, name) == 0
        gone = (is_last or caller.user.is_admin) and remove_if_unused(tx, context.settings.home, name)
        accounts.add_audit_entry(
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
    gone = remove_unused_environments(
        context.store,
        context.settings.home,
        select_unused_environments(kept, context.now() - timedelta(days=days), None),
    )
    told = {"days": days, "count": gone}
    context.store.write(
        lambda tx: accounts.add_audit_entry(tx, caller, "environment.prune", "environments", told, context.now())
    )
    return gone


def check_may_stop_build(tx: Transaction, caller: Caller, job: Job) -> None:
    """A build belongs to everybody who waits for it: who asked first may not take it from the others."""
    if job.kind not in BUILD_JOB_KINDS or job.environment is None or caller.user.is_admin:
        return
    others = [
        name
        for name in stored.list_users_needing_environment(tx.conn, job.environment, job.id)
        if name != caller.user.name
    ]
    if others:
        raise Forbidden(
            f"Others wait for the environment that job {job.id} builds.", "An admin can stop it all the same."
        )


def _is_needed(tx: Transaction, caller: Caller, digest: str) -> bool:
    """By any job, as far as it would go from the disk; by one's own in any case."""
    users: Sequence[str] = stored.list_users_needing_environment(tx.conn, digest, 0)
    return caller.user.name in users or (bool(users) and caller.user.is_admin)


def _shown(context: Context, kept: StoredEnvironment) -> EnvironmentView:
    digest, state = kept.environment.digest, environment_state(kept.build_state)
    folder = find_environment_folder(context.settings.home, digest) if state is EnvironmentState.READY else None
    if state is EnvironmentState.READY and folder is None:
        return EnvironmentView(
            kept.environment, EnvironmentState.FAILED, "its folder is gone", None, kept.is_needed
        )
    reason = kept.build_reason if state is EnvironmentState.FAILED else None
    return EnvironmentView(kept.environment, state, reason, folder, kept.is_needed)


def select_unused_environments(
    kept: Sequence[StoredEnvironment], before: datetime | None, most_bytes: int | None
) -> list[str]:
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


def _last_use(one: StoredEnvironment) -> datetime:
    return one.environment.used_at or one.environment.created_at


def remove_unused_environments(store: Store, home: Home, digests: Iterable[str]) -> int:
    """Remove these, as far as nobody needs them now; how many those were."""
    gone = sum(store.write(partial(remove_if_unused, home=home, digest=digest)) for digest in digests)
    empty_trash(home)
    return gone


def remove_if_unused(tx: Transaction, home: Home, digest: str) -> bool:
    """Unless a job needs it. The rename is part of the change: nobody can come to need it in between."""
    kept = stored.find_environment(tx.conn, digest)
    if kept is None or kept.is_needed:
        return False
    stored.remove_environment(tx, digest)
    remove_image(tx, digest)
    move_to_trash(home, digest)
    return True


def empty_trash(home: Home) -> None:
    """By `rm`, which follows no link and leaves other file systems alone: in there is the work of people."""
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(home.environments / "trash"):
            words = ["rm", "-rf", "--one-file-system", "--", entry.path]
            subprocess.run(words, check=False, capture_output=True, stdin=subprocess.DEVNULL)
