"""Keeps Slurm's accounts in step with ours."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from heliostat.engines.accounts import AccountPlan, AccountStep, AccountUse, Membership, OurAccounts
from heliostat.engines.slurm.accounts.plan import (
    Wanted,
    department_account,
    plan_accounts,
    project_account,
    wanted_accounts,
)
from heliostat.engines.slurm.accounts.sacctmgr import Access, SlurmAccounts, carry_out, first_line
from heliostat.engines.slurm.accounts.steps import AddUser, Found, RemoveUser, Step
from heliostat.engines.slurm.client import SlurmRefused
from heliostat.errors import Conflict


class SlurmAccountSync:
    """Fulfils `AccountSync`."""

    def __init__(self, accounts: SlurmAccounts, instance: str) -> None:
        self._accounts, self._instance = accounts, instance

    @contextmanager
    def changing(self) -> Iterator[None]:
        with self._accounts.changing:
            try:
                yield
            finally:
                self._accounts.look_again()

    def plan(self, ours: OurAccounts, made: Collection[Membership]) -> AccountPlan:
        access = self._look()
        plan = plan_accounts(wanted_accounts(ours, access.conduct, self._instance), access.found, made)
        steps = tuple(_told(step, plan.cluster) for step in plan.steps)
        return AccountPlan(plan.cluster, steps, plan.left_alone, plan.not_expressed)

    def carry_out(self, step: AccountStep) -> bool:
        try:
            return carry_out(self._accounts.slurm, step.argv)
        except SlurmRefused as error:
            raise Conflict(first_line(error), "See `sacctmgr show associations`.") from error

    def missing(self, ours: OurAccounts) -> tuple[int, int]:
        access = self._look()
        return _missing(wanted_accounts(ours, access.conduct, self._instance), access.found)

    def used(self) -> Sequence[AccountUse]:
        return self._accounts.used()

    def account_of(self, kind: str, name: str) -> str:
        return department_account(name) if kind == "department" else project_account(name)

    def _look(self) -> Access:
        try:
            return self._accounts.look()
        except SlurmRefused as error:
            raise Conflict(f"Slurm refuses it: {first_line(error)}.", "See `scontrol show config`.") from error


def _told(step: Step, cluster: str) -> AccountStep:
    adds = (step.account, step.user) if isinstance(step, AddUser) else None
    removes = (step.account, step.user) if isinstance(step, RemoveUser) else None
    return AccountStep(step.sentence, step.argv(cluster), adds, removes)


def _missing(wanted: Wanted, found: Found) -> tuple[int, int]:
    """Users in at least one project's account that they are not in, and projects without an account."""
    there = found.associations
    users = sum(any((one, person.user) not in there for one in person.accounts) for person in wanted.people)
    accounts = (project_account(group.name) for group in wanted.groups if group.kind == "project")
    return users, sum((account, "") not in there for account in accounts)
