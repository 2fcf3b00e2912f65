"""Verbs on environments: build, list, look, remove. Everybody sees those they have asked for; admins see all."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from heliostat.controller.environments import ready_folder
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
from heliostat.services.context import Context
from heliostat.services.environments.orders import found, serve, take_order
from heliostat.services.environments.removal import collect, due, empty_trash, take_away
from heliostat.services.jobs.logs import LogPart, LogRange, read_log
from heliostat.services.rights import require_admin
from heliostat.store import environments as stored
from heliostat.store import jobs as stored_jobs
from heliostat.store import people
from heliostat.store.database import Transaction
from heliostat.store.environments import Kept

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
    from heliostat.services.jobs.submission import project_and_unix_user

    unix_user, settled = project_and_unix_user(context, caller.user, project)
    limit = context.settings.queue.max_jobs_per_user
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
