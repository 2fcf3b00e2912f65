"""A paused server: what an admin must know and decide before it is resumed."""

import json
from dataclasses import dataclass
from enum import StrEnum

from heliostat.config import Home
from heliostat.config.pause_file import Pause, end_pause
from heliostat.controller.controller import Resumption
from heliostat.controller.leftover_attempts import find_newer_attempts
from heliostat.engines.contract import Engine, Finding, LeftoverAttempt
from heliostat.errors import Conflict
from heliostat.models import AttemptId, Caller, User
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin, write_as_caller
from heliostat.store.accounts import add_audit_entry
from heliostat.store.database import Store, Transaction


class UnknownJobs(StrEnum):
    """What becomes of running jobs that the database does not know."""

    STOP = "stop"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class PauseView:
    pause: Pause | None
    unknown_jobs: tuple[LeftoverAttempt, ...]


def show_pause(context: Context, caller: Caller) -> PauseView:
    require_admin(caller.user)
    current = context.pause.current
    unknown = find_unknown_jobs(context.settings.home, context.store, context.engine) if current else ()
    return PauseView(current, unknown)


def resume(context: Context, caller: Caller, unknown_jobs: UnknownJobs | None) -> None:
    """Raises Conflict if jobs run that the database does not know, and nothing is said about them."""
    require_admin(caller.user)
    home, state = context.settings.home, context.pause
    with state.lock:
        if state.current is None:
            return
        unknown = find_unknown_jobs(home, context.store, context.engine)
        if unknown and unknown_jobs is None:
            raise Conflict(describe_unknown_jobs(unknown), RESUME_HINT, code="unknown_jobs")
        details = {"unknown_jobs": unknown_jobs, "attempts": [found.id for found in unknown]} if unknown else {}

        def add_entry(tx: Transaction, actor: User) -> None:
            add_audit_entry(tx, caller, "server.resume", "server", details, context.now())

        write_as_caller(context, caller, add_entry)
        left = read_left_attempts(home)
        if unknown_jobs is UnknownJobs.LEAVE:
            left |= {found.id for found in unknown}
            _write_left_attempts(home, left)
        context.controller.resume(Resumption(state.current.after_restore, left))
        state.start_loops()
        end_pause(home)
        state.current = None


def find_unknown_jobs(home: Home, store: Store, engine: Engine) -> tuple[LeftoverAttempt, ...]:
    """Running jobs that the database does not know, without those that an admin has decided to leave."""
    left = read_left_attempts(home)
    return tuple(found for found in find_newer_attempts(store, engine).of_unknown_jobs if found.id not in left)


def check_left_jobs(context: Context) -> list[Finding]:
    """For the doctor: the jobs that an admin has decided to leave, while they run."""
    left = read_left_attempts(context.settings.home)
    if not left:
        return []
    free = "" if context.engine.capabilities.has_own_queue else " Its CPUs and memory count as free."
    return [
        Finding(
            "left jobs",
            "warning",
            f"It was left running, and the database does not know it: {_describe(found)}.{free}",
            f"To stop it: {found.stop_command}" if found.stop_command else None,
        )
        for found in find_newer_attempts(context.store, context.engine).of_unknown_jobs
        if found.id in left
    ]


RESUME_HINT = "`helio resume --unknown-jobs stop` stops them; `--unknown-jobs leave` lets them run unwatched."


def describe_unknown_jobs(unknown: tuple[LeftoverAttempt, ...]) -> str:
    shown = "; ".join(_describe(found) for found in unknown[:10])
    more = f" and {len(unknown) - 10} more" if len(unknown) > 10 else ""
    return f"Jobs run that the database does not know: {shown}{more}."


def _describe(found: LeftoverAttempt) -> str:
    job_id = found.id.partition(".")[0]
    owner = f" of {found.unix_user}" if found.unix_user else ""
    return f"job {job_id}{owner} ({found.place})"


def read_left_attempts(home: Home) -> frozenset[AttemptId]:
    try:
        return frozenset(json.loads(home.left_attempts_file.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return frozenset()


def _write_left_attempts(home: Home, left: frozenset[AttemptId]) -> None:
    draft = home.left_attempts_file.with_suffix(".new")
    draft.write_text(json.dumps(sorted(left)) + "\n", encoding="utf-8")
    draft.replace(home.left_attempts_file)
