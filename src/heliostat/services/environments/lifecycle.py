"""Environments: build, list, show, remove and prune. Users see the ones they have requested; admins see all."""

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from heliostat.config import Home
from heliostat.controller.environment_installation import find_environment_folder, move_to_trash
from heliostat.engines.job_file_reader import LogChunk
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
from heliostat.services.accounts.required_accounts import require_unix_user_and_project
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
from heliostat.untrusted_folders import remove_folder

MAX_LISTED = 1000
_MAX_PRUNED = 100_000


@dataclass(frozen=True, slots=True)
class EnvironmentView:
    """An environment and its state."""

    environment: Environment
    state: EnvironmentState
    reason: str | None  # why it failed
    folder: Path | None  # None: not ready
    is_in_use: bool  # by an unfinished job


def build_environment(
    context: Context, caller: Caller, spec: EnvironmentSpec, project: str | None = None
) -> EnvironmentView:
    """An existing environment with the same content, or a new build in the queue."""
    unix_user, resolved_project = require_unix_user_and_project(context, caller.user, project)
    limit = context.settings.queue.max_jobs_per_user
    if context.controller.count_unfinished_jobs(caller.user.name) >= limit:
        raise Conflict(f"You have {limit} unfinished jobs.", "Wait until some have ended.", code="queue_full")
    environment_request = prepare_environment_request(context, caller, spec, (unix_user, resolved_project))
    context.store.write(lambda tx: provide_environment(context, tx, environment_request))
    return show_environment(context, caller, environment_request.environment.digest)


def list_environments(
    context: Context, caller: Caller, *, all_users: bool = False, images: bool = False
) -> list[EnvironmentView]:
    """The caller's own, most recently used first; with `all_users`, for admins, all. `images`: only images, else
    none."""
    if all_users:
        require_admin(caller.user)
    with context.store.read() as conn:
        kept = stored.list_environments(conn, None if all_users else caller.user.name, MAX_LISTED)
    return [
        _view(context, entry)
        for entry in kept
        if (entry.environment.spec.kind in IMAGE_ENVIRONMENT_KINDS) is images
    ]


def show_environment(context: Context, caller: Caller, digest: str) -> EnvironmentView:
    """By its digest or a prefix of it."""
    return _view(context, require_environment(context, caller, digest))


def read_build_log(context: Context, caller: Caller, digest: str, offset: int = 0) -> LogChunk:
    """The output of its build, for all users who have requested the environment."""
    build = get_build_job(context, require_environment(context, caller, digest).environment)
    return LogChunk(b"", 0, 0) if build is None else read_log(context, build, LogRange("stdout", offset))


def get_build_job(context: Context, environment: Environment) -> Job | None:
    with context.store.read() as conn:
        return stored_jobs.get_job(conn, environment.build_job)


def remove_environment(context: Context, caller: Caller, digest: str) -> bool:
    """Remove it from the caller's list, and from the disk if no other user has requested it or the caller is an
    admin. Returns whether it was deleted from the disk."""
    kept = require_environment(context, caller, digest)
    name = kept.environment.digest

    def change(tx: Transaction) -> bool:
        if _is_needed(tx, caller, name):
            raise Conflict(
                "An unfinished job needs this environment.", "Wait until the job has ended, or cancel it."
            )
        stored.remove_environment_use(tx, name, caller.user.name)
        is_last = stored.count_requesting_users(tx.conn, name) == 0
        deleted = (is_last or caller.user.is_admin) and remove_if_unused(tx, context.settings.home, name)
        accounts.add_audit_entry(
            tx, caller, "environment.remove", f"environment {name[:12]}", {"gone": deleted}, context.now()
        )
        return deleted

    deleted = context.store.write(change)
    empty_trash(context.settings.home)
    return deleted


def prune_environments(context: Context, caller: Caller, days: int) -> int:
    """Delete environments that were not used for so many days and that no job needs; for admins. Returns the
    number."""
    require_admin(caller.user)
    if not 0 <= days <= 36_500:
        raise Invalid(
            "days must be between 0 and 36500.", "Choose another number.", fields={"days": "from 0 to 36500"}
        )
    with context.store.read() as conn:
        kept = stored.list_environments(conn, None, _MAX_PRUNED)
    deleted = remove_unused_environments(
        context.store,
        context.settings.home,
        select_unused_environments(kept, context.now() - timedelta(days=days), None),
    )
    details = {"days": days, "count": deleted}
    context.store.write(
        lambda tx: accounts.add_audit_entry(
            tx, caller, "environment.prune", "environments", details, context.now()
        )
    )
    return deleted


def check_may_stop_build(tx: Transaction, caller: Caller, job: Job) -> None:
    """Raises Forbidden if jobs of other users wait for this build."""
    if job.kind not in BUILD_JOB_KINDS or job.environment is None or caller.user.is_admin:
        return
    others = [
        name
        for name in stored.list_users_needing_environment(tx.conn, job.environment, job.id)
        if name != caller.user.name
    ]
    if others:
        raise Forbidden(
            f"Jobs of other users wait for the environment that job {job.id} builds.", "An admin can stop it."
        )


def _is_needed(tx: Transaction, caller: Caller, digest: str) -> bool:
    """By a job of the caller; for an admin, who deletes it from the disk, by any job."""
    users: Sequence[str] = stored.list_users_needing_environment(tx.conn, digest, 0)
    return caller.user.name in users or (bool(users) and caller.user.is_admin)


def _view(context: Context, kept: StoredEnvironment) -> EnvironmentView:
    digest, state = kept.environment.digest, environment_state(kept.build_state)
    folder = find_environment_folder(context.settings.home, digest) if state is EnvironmentState.READY else None
    if state is EnvironmentState.READY and folder is None:
        return EnvironmentView(
            kept.environment, EnvironmentState.FAILED, "its folder has been deleted", None, kept.is_needed
        )
    reason = kept.build_reason if state is EnvironmentState.FAILED else None
    return EnvironmentView(kept.environment, state, reason, folder, kept.is_needed)


def select_unused_environments(
    kept: Sequence[StoredEnvironment], before: datetime | None, most_bytes: int | None
) -> list[str]:
    """Digests of environments to delete, none that a job needs: those not used since `before`, and the least
    recently used ones while the total size exceeds `most_bytes`. Pure."""
    unused = sorted((each for each in kept if not each.is_needed), key=_last_use)
    old = [each for each in unused if before is not None and _last_use(each) < before]
    size = sum(each.environment.size_bytes or 0 for each in kept) - sum(
        each.environment.size_bytes or 0 for each in old
    )
    digests = [each.environment.digest for each in old]
    for each in unused[len(old) :] if most_bytes is not None else ():
        if size <= (most_bytes or 0):
            break
        digests.append(each.environment.digest)
        size -= each.environment.size_bytes or 0
    return digests


def _last_use(each: StoredEnvironment) -> datetime:
    return each.environment.used_at or each.environment.created_at


def remove_unused_environments(store: Store, home: Home, digests: Iterable[str]) -> int:
    """Delete those that no job needs now; returns their number."""
    deleted = sum(store.write(partial(remove_if_unused, home=home, digest=digest)) for digest in digests)
    empty_trash(home)
    return deleted


def remove_if_unused(tx: Transaction, home: Home, digest: str) -> bool:
    """Unless a job needs it. The move to the trash happens inside the transaction, so that no new job can need
    it."""
    kept = stored.find_environment(tx.conn, digest)
    if kept is None or kept.is_needed:
        return False
    stored.remove_environment(tx, digest)
    remove_image(tx, digest)
    move_to_trash(home, digest)
    return True


def empty_trash(home: Home) -> None:
    """What cannot be removed now stays until the next cleanup."""
    with contextlib.suppress(FileNotFoundError):
        for each in os.scandir(home.environments / "trash"):
            with contextlib.suppress(OSError):
                remove_folder(each.path)
