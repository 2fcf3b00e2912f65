"""Migration from the local engine to Slurm, with the same users, projects, history and waiting jobs.

It runs while no server runs, in an order that is safe against a crash: backups first, then Slurm gets its
accounts and the jobs that Slurm cannot run are held, and the line in `cluster.toml` is last. Before that line is
written, the engine has not changed; a repeated migration continues.
"""

import os
import pwd
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from heliostat.config import Home, Settings
from heliostat.config.toml_edit import replace_setting
from heliostat.doctor import check_installation
from heliostat.engines.account_sync import AccountSync
from heliostat.engines.contract import ChecksRequests, Finding
from heliostat.engines.factory import make_slurm_account_sync, make_slurm_request_checker
from heliostat.engines.job_folders import AttemptRefused, require_run_as_user
from heliostat.errors import Conflict, EngineUnavailable, Invalid
from heliostat.models import ACTIVE_STATES, Caller, Job, JobId, JobState, Role, User
from heliostat.services.accounts.slurm_sync import AccountSynchronization
from heliostat.services.home_lock import lock_out_server
from heliostat.store.database import Store
from heliostat.store.database_copy import copy_database, move_into_place
from heliostat.store.job_writes import JobTransition, apply_transitions
from heliostat.store.jobs import get_jobs, list_unfinished_jobs
from heliostat.store.projects_and_quotas import project_data_classes
from heliostat.store.schema_upgrade import LATEST_REVISION, database_revision

_BACKUP_SUFFIX = ".before-slurm"


@dataclass(frozen=True, slots=True)
class UnsupportedJob:
    """A waiting job that Slurm cannot run."""

    job_id: JobId
    user: str
    why: str


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """Jobs and problems that affect the migration."""

    is_done: bool  # the engine is Slurm already
    waiting: int  # jobs that are migrated, held ones included
    active: tuple[JobId, ...]  # run on this server, and must end or be requeued first
    unfit: tuple[UnsupportedJob, ...]  # without held jobs
    problems: tuple[Finding, ...]
    account_steps: tuple[str, ...] = ()  # accounts that Slurm does not have yet, and other differences
    accounts_left_out: tuple[str, ...] = ()  # differences that stay

    def require_ready(self, hold_unfit: bool) -> None:
        """Raises Conflict with the first obstacle."""
        if self.problems:
            first = self.problems[0]
            raise Conflict(f"Not ready for Slurm: {first.message}", first.hint)
        if self.active:
            raise Conflict(
                f"Jobs run on this server, or ran when it was stopped: {_listed(self.active)}.",
                "Run `helio up` and `helio node drain`, so that no more jobs start. "
                "Wait until these jobs have ended, or `helio requeue` them. "
                "Then run `helio down` and repeat this command.",
            )
        if self.unfit and not hold_unfit:
            numbers = _listed([job.job_id for job in self.unfit])
            raise Conflict(
                f"Slurm cannot run these jobs: {numbers}.",
                "Cancel them, or hold them with --hold. --dry-run shows the reasons.",
            )


@dataclass(frozen=True, slots=True)
class MigrationResult:
    plan: MigrationPlan
    backup_files: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class TargetSlurm:
    """The Slurm cluster that will run the jobs."""

    findings: Sequence[Finding]
    requests: ChecksRequests
    account_sync: AccountSync


ReadSlurm = Callable[[Settings], TargetSlurm]


def plan_migration(settings: Settings, read_slurm: ReadSlurm | None = None) -> MigrationPlan:
    """Checks only, changes nothing; a server may be running."""
    if settings.server.engine == "slurm":
        return MigrationPlan(True, 0, (), (), ())
    return _plan(settings, (read_slurm or _read_slurm)(_require_local(settings)))


def migrate_to_slurm(
    settings: Settings, hold_unfit: bool = False, read_slurm: ReadSlurm | None = None
) -> MigrationResult:
    """Raises Conflict if it is not possible; then the engine has not changed."""
    home = settings.home
    if settings.server.engine == "slurm":
        return MigrationResult(plan_migration(settings), ())
    with lock_out_server(home, "Stop it first: helio down. --dry-run works while it runs."):
        slurm = (read_slurm or _read_slurm)(_require_local(settings))
        plan = _plan(settings, slurm)
        plan.require_ready(hold_unfit)
        text = _read(home.config_file)
        changed = replace_setting(text, "server", "engine", "slurm")
        copies = tuple(_make_backups(home))
        if plan.account_steps:
            _apply_accounts(settings, slurm)
        _hold(home, plan.unfit)
        _write(home.config_file, changed, home.config_file)
    return MigrationResult(plan, copies)


def _require_local(settings: Settings) -> Settings:
    if settings.server.engine != "local":
        raise Conflict(
            f"The engine is {settings.server.engine}, not local.",
            "Only the local engine can be migrated to Slurm.",
        )
    return settings


def _read_slurm(settings: Settings) -> TargetSlurm:
    on_slurm = replace(settings, server=replace(settings.server, engine="slurm"))
    return TargetSlurm(
        check_installation(on_slurm), make_slurm_request_checker(settings), make_slurm_account_sync(settings)
    )


def _plan(settings: Settings, slurm: TargetSlurm) -> MigrationPlan:
    jobs, classes = _unfinished(settings.home)
    waiting = [job for job in jobs if job.state not in ACTIVE_STATES]
    pending = [job for job in waiting if job.state is JobState.PENDING]
    reasons = ((job, _unsupported_reason(job, classes.get(job.project, 0), slurm.requests)) for job in pending)
    problems = tuple(finding for finding in slurm.findings if finding.level == "problem")
    steps, left_out = ((), ()) if problems else _plan_accounts(settings, slurm)
    return MigrationPlan(
        is_done=False,
        waiting=len(waiting),
        active=tuple(job.id for job in jobs if job.state in ACTIVE_STATES),
        unfit=tuple(UnsupportedJob(job.id, job.user, why) for job, why in reasons if why),
        problems=problems,
        account_steps=steps,
        accounts_left_out=left_out,
    )


def _plan_accounts(settings: Settings, slurm: TargetSlurm) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What changes in Slurm's accounts, and what does not. A Slurm without accounts accepts everybody's jobs."""
    if not settings.home.database.exists():
        return (), ()
    with _accounts_of(settings, slurm) as synchronization:
        try:
            plan = synchronization.plan()
        except (Conflict, EngineUnavailable) as error:
            return (), (f"{error.message} Jobs of users without an account in Slurm wait.",)
    return tuple(step.sentence for step in plan.steps), (*plan.unmanaged, *plan.unsupported)


def _apply_accounts(settings: Settings, slurm: TargetSlurm) -> None:
    name = pwd.getpwuid(os.geteuid()).pw_name
    admin = User(name, Role.ADMIN, name, True, datetime.now(UTC))
    with _accounts_of(settings, slurm) as synchronization:
        try:
            synchronization.apply(Caller(admin, "migration", ""))
        except Conflict as error:
            raise Conflict(
                error.message, "The engine is not changed. Then repeat: helio migrate slurm."
            ) from error


@contextmanager
def _accounts_of(settings: Settings, slurm: TargetSlurm) -> Iterator[AccountSynchronization]:
    store = Store(settings.home.database)
    try:
        yield AccountSynchronization(store, settings, slurm.account_sync, lambda: datetime.now(UTC))
    finally:
        store.close()


def _unsupported_reason(job: Job, data_class: int, slurm: ChecksRequests) -> str | None:
    """Why Slurm could never run the job, as the Slurm engine reports it; None: it could."""
    try:
        require_run_as_user(job.unix_user)
        slurm.check_request(job, data_class)
    except (Invalid, AttemptRefused) as error:
        return str(error)
    return None


def _unfinished(home: Home) -> tuple[list[Job], dict[str, int]]:
    """Unfinished jobs (pending ones with their specs), and the data classes of projects."""
    if not home.database.exists():
        return [], {}
    if database_revision(home.database) != LATEST_REVISION:
        raise Conflict(
            "The database has another version.", "Start and stop this version once: helio up, helio down."
        )
    store = Store(home.database)
    try:
        with store.read() as conn:
            listed = list_unfinished_jobs(conn)
            with_spec = get_jobs(conn, [job.id for job in listed if job.state is JobState.PENDING])
            return [with_spec.get(job.id, job) for job in listed], project_data_classes(conn)
    finally:
        store.close()


def _hold(home: Home, unfit: Sequence[UnsupportedJob]) -> None:
    if not unfit:
        return
    store, now = Store(home.database), datetime.now(UTC)
    try:
        reasons = {job.job_id: f"held by the migration to Slurm: {job.why}" for job in unfit}
        held = [
            JobTransition(job_id, JobState.HELD, "held", now, values={"reason": reason}, detail=reason)
            for job_id, reason in reasons.items()
        ]
        store.write(lambda tx: apply_transitions(tx, held))
    finally:
        store.close()


def _make_backups(home: Home) -> Iterator[Path]:
    if home.config_file.exists():
        copy = home.config_file.with_name(home.config_file.name + _BACKUP_SUFFIX)
        _write(copy, _read(home.config_file), home.config_file)
        yield copy
    if home.database.exists():
        copy = home.database.with_name(home.database.name + _BACKUP_SUFFIX)
        copy_database(home.database, copy)
        yield copy


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise Invalid(f"{path} cannot be read: {error}", "Fix that line; the format is TOML.") from error


def _write(path: Path, text: str, like: Path) -> None:
    """Atomically, with the file mode of `like`."""
    draft = path.with_name(path.name + ".draft")
    draft.write_bytes(text.encode("utf-8"))
    if like.exists():
        draft.chmod(like.stat().st_mode & 0o777)
    move_into_place(draft, path)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:20])) + (f" and {len(numbers) - 20} more" if len(numbers) > 20 else "")
