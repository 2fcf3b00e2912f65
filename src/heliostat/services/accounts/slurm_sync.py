"""Synchronisation of Slurm accounts with departments, projects and users, for admins."""

import pwd
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from heliostat.config import Settings
from heliostat.engines.account_sync import (
    AccountPlan,
    AccountStep,
    AccountSync,
    EngineMembership,
    HeliostatAccounts,
)
from heliostat.engines.contract import Finding, ProbesNodes, SyncsAccounts
from heliostat.errors import Conflict, EngineUnavailable, HeliostatError
from heliostat.models import Caller, Role, User
from heliostat.models.amounts import format_count
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin
from heliostat.store import accounts, projects_and_quotas
from heliostat.store.database import Store
from heliostat.store.projects_and_quotas import list_departments

__all__ = [
    "AccountPlan",
    "AccountSynchronization",
    "AppliedAccountPlan",
    "apply_slurm_accounts",
    "apply_slurm_accounts_automatically",
    "check_slurm_accounts",
    "heliostat_accounts",
    "plan_slurm_accounts",
    "probe_nodes",
]


@dataclass(frozen=True, slots=True)
class AppliedAccountPlan:
    plan: AccountPlan
    applied_steps: tuple[AccountStep, ...]


@dataclass(frozen=True, slots=True)
class AccountSynchronization:
    """Makes the accounts of Slurm match those in the database. Needs no running server."""

    store: Store
    settings: Settings
    sync: AccountSync
    now: Callable[[], datetime]

    def plan(self) -> AccountPlan:
        """The steps that `apply` would take; changes nothing. Raises EngineUnavailable, Conflict."""
        with self.store.read() as conn:
            membership = projects_and_quotas.list_slurm_associations(conn)
        return self.sync.plan(_heliostat_accounts(self.store, self.settings), membership)

    def apply(self, caller: Caller) -> AppliedAccountPlan:
        """If Slurm refuses a step, the earlier steps stay applied; it can be repeated. Raises Conflict."""
        with self.sync.lock_changes():
            plan = self.plan()
            applied: list[AccountStep] = []
            try:
                for step in plan.steps:
                    self._apply_step(step)
                    applied.append(step)
            except (Conflict, EngineUnavailable) as error:
                raise _step_refused_error(plan, applied, error.message.rstrip(".")) from error
            finally:
                self._add_audit_entry(caller, plan, applied)
        return AppliedAccountPlan(plan, tuple(applied))

    def _apply_step(self, step: AccountStep) -> None:
        """An added membership is stored before the step is applied, so that it is known even if the response is
        lost."""
        if (added := step.added_membership) is not None:
            self.store.write(lambda tx: projects_and_quotas.add_slurm_association(tx, *added))
        try:
            is_ours = self.sync.apply_step(step)
        except Conflict:
            self._forget(step.added_membership)
            raise
        self._forget(step.removed_membership if is_ours else step.removed_membership or step.added_membership)

    def _forget(self, membership: EngineMembership | None) -> None:
        if membership is not None:
            self.store.write(lambda tx: projects_and_quotas.remove_slurm_association(tx, *membership))

    def _add_audit_entry(self, caller: Caller, plan: AccountPlan, applied: Sequence[AccountStep]) -> None:
        if not applied:
            return
        detail = {"steps": [step.sentence for step in applied]}
        target = f"cluster {plan.cluster}"
        self.store.write(
            lambda tx: accounts.add_audit_entry(tx, caller, "slurm.apply", target, detail, self.now())
        )


def plan_slurm_accounts(context: Context, caller: Caller) -> AccountPlan:
    """The steps that `apply_slurm_accounts` would take; changes nothing."""
    require_admin(caller.user)
    return _synchronization(context).plan()


def apply_slurm_accounts(context: Context, caller: Caller) -> AppliedAccountPlan:
    """Apply the plan step by step. If Slurm refuses a step, the earlier steps stay applied; it can be repeated."""
    require_admin(caller.user)
    return _synchronization(context).apply(caller)


def check_slurm_accounts(context: Context) -> list[Finding]:
    """Users and projects that do not exist in Slurm yet."""
    if not isinstance(context.engine, SyncsAccounts):
        return []
    try:
        plan = _synchronization(context).plan()
    except HeliostatError:
        return []  # another check reports that the accounting does not respond
    missing = (
        f"{format_count(plan.missing_users, 'user')} and {format_count(plan.missing_projects, 'project')} are not"
        " in Slurm yet."
    )
    is_missing = plan.missing_users + plan.missing_projects > 0
    if plan.steps:
        message = missing if is_missing else f"{format_count(len(plan.steps), 'change')} not applied to Slurm yet."
        hint = "See what is missing: helio slurm plan. Then: helio slurm apply"
        return [Finding("slurm", "warning", message, hint)]
    if not plan.unmanaged:
        return [Finding("slurm", "ok", "All users and projects are in Slurm.")]
    message = f"All users and projects are in Slurm, except: {plan.unmanaged[0]}"
    return [Finding("slurm", "warning" if is_missing else "ok", message, "All exceptions: helio slurm plan")]


def heliostat_accounts(context: Context) -> HeliostatAccounts:
    """The accounts from which those of Slurm are derived."""
    return _heliostat_accounts(context.store, context.settings)


def apply_slurm_accounts_automatically(context: Context) -> AppliedAccountPlan:
    """As `apply_slurm_accounts`, because the settings say so."""
    name = "heliostat"
    server = User(name, Role.ADMIN, None, True, context.now())
    return _synchronization(context).apply(Caller(server, "automatic", ""))


def probe_nodes(context: Context) -> None:
    """Start checks on the engine's nodes, with the Unix users of all active accounts; the doctor reports the
    results."""
    if not isinstance(context.engine, ProbesNodes):
        return
    with context.store.read() as conn:
        names = sorted({user.unix_user for user in accounts.list_users(conn) if user.unix_user and user.active})
    with suppress(EngineUnavailable):  # the doctor reports it anyway
        context.engine.probe_nodes(dict(_local_ids(names)))


def _local_ids(names: Sequence[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    for name in names:
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            yield entry.pw_name, (entry.pw_uid, entry.pw_gid)


def _synchronization(context: Context) -> AccountSynchronization:
    if isinstance(context.engine, SyncsAccounts):
        return AccountSynchronization(context.store, context.settings, context.engine.account_sync, context.now)
    raise Conflict(
        f"Jobs run on the engine {context.engine.name}, not on Slurm.",
        "Shares and quotas apply without it: there is nothing to synchronise.",
    )


def _heliostat_accounts(store: Store, settings: Settings) -> HeliostatAccounts:
    with store.read() as conn:
        return HeliostatAccounts(
            list_departments(conn),
            accounts.list_projects(conn),
            accounts.list_users(conn),
            settings.auth.default_project,
            settings.queue.urgent_gpu_hours_per_month,
        )


def _step_refused_error(plan: AccountPlan, applied: Sequence[AccountStep], message: str) -> Conflict:
    step = plan.steps[len(applied)]
    hint = "It has running or waiting jobs there: once they have ended, " if "active" in message else "Then "
    return Conflict(
        f"Slurm refuses step {len(applied) + 1} of {len(plan.steps)} ({step.sentence.rstrip('.')}): {message}.",
        f"The earlier steps are applied. {hint}repeat: helio slurm apply.",
        code="slurm_refused",
    )
