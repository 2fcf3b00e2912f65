"""Synchronizes Slurm's accounting with Heliostat's accounts: `SlurmAccountSync`."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from heliostat.config import Home
from heliostat.engines.account_sync import (
    AccountPlan,
    AccountStep,
    AccountUsage,
    EngineMembership,
    HeliostatAccounts,
)
from heliostat.engines.slurm.accounts.plan import (
    DesiredAccounting,
    build_desired_accounting,
    department_account_name,
    plan_accounting,
    project_account_name,
)
from heliostat.engines.slurm.accounts.sacctmgr import AccountAccess, SlurmAccounts, first_error_line, run_sacctmgr
from heliostat.engines.slurm.accounts.steps import AccountingStep, AddUser, ObservedAccounting, RemoveUser
from heliostat.engines.slurm.batch_script import instance_id
from heliostat.engines.slurm.client import SlurmClient, SlurmRefused
from heliostat.errors import Conflict


class SlurmAccountSync:
    """Implements `AccountSync`."""

    def __init__(self, accounts: SlurmAccounts, instance: str) -> None:
        self._accounts, self._instance = accounts, instance

    @contextmanager
    def lock_changes(self) -> Iterator[None]:
        with self._accounts.change_lock:
            try:
                yield
            finally:
                self._accounts.refresh_after_change()

    def plan(self, ours: HeliostatAccounts, created: Collection[EngineMembership]) -> AccountPlan:
        access = self._refresh()
        desired = build_desired_accounting(ours, access.config, self._instance)
        plan = plan_accounting(desired, access.accounting, created)
        steps = tuple(_make_account_step(step, plan.cluster) for step in plan.steps)
        missing = _missing(desired, access.accounting)
        return AccountPlan(plan.cluster, steps, plan.unmanaged, plan.unsupported, *missing)

    def apply_step(self, step: AccountStep) -> bool:
        try:
            return run_sacctmgr(self._accounts.client, step.argv)
        except SlurmRefused as error:
            raise Conflict(first_error_line(error), "See `sacctmgr show associations`.") from error

    def account_usage(self) -> Sequence[AccountUsage]:
        return self._accounts.account_usage()

    def account_name(self, kind: str, name: str) -> str:
        return department_account_name(name) if kind == "department" else project_account_name(name)

    def _refresh(self) -> AccountAccess:
        try:
            return self._accounts.refresh()
        except SlurmRefused as error:
            raise Conflict(f"Slurm refused: {first_error_line(error)}.", "See `scontrol show config`.") from error


def make_account_sync(home: Home) -> SlurmAccountSync:
    """Without the engine."""
    return SlurmAccountSync(SlurmAccounts(SlurmClient.for_home(home)), instance_id(home))


def _make_account_step(step: AccountingStep, cluster: str) -> AccountStep:
    adds = (step.account, step.user) if isinstance(step, AddUser) else None
    removes = (step.account, step.user) if isinstance(step, RemoveUser) else None
    return AccountStep(step.sentence, step.argv(cluster), adds, removes)


def _missing(desired: DesiredAccounting, observed: ObservedAccounting) -> tuple[int, int]:
    """Number of users who lack the account of at least one project, and of projects without an account."""
    existing = observed.associations
    users = sum(any((name, person.user) not in existing for name in person.accounts) for person in desired.users)
    accounts = (project_account_name(group.name) for group in desired.accounts if group.kind == "project")
    return users, sum((account, "") not in existing for account in accounts)
