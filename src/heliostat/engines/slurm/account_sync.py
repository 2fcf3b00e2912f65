"""Keeps Slurm's accounts in step with ours."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from heliostat.engines.accounts import AccountPlan, AccountStep, AccountUse, Membership, OurAccounts
from heliostat.engines.slurm.accounts import AddUser, Found, RemoveUser, Step
from heliostat.engines.slurm.accounts_plan import plan_accounts
from heliostat.engines.slurm.accounts_wanted import Wanted, department_account, project_account, wanted_accounts
from heliostat.engines.slurm.associations import Picture, SlurmAccounts
from heliostat.engines.slurm.programs import SlurmRefused
from heliostat.engines.slurm.sacctmgr import carry_out, first_line
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
        picture = self._look()
        plan = plan_accounts(wanted_accounts(ours, picture.conduct, self._instance), picture.found, made)
        steps = tuple(_told(step, plan.cluster) for step in plan.steps)
        return AccountPlan(plan.cluster, steps, plan.left_alone, plan.not_expressed)

    def carry_out(self, step: AccountStep) -> bool:
        try:
            return carry_out(self._accounts.slurm, step.argv)
        except SlurmRefused as error:
            raise Conflict(first_line(error), "See `sacctmgr show associations`.") from error

    def missing(self, ours: OurAccounts) -> tuple[int, int]:
        picture = self._look()
        return _missing(wanted_accounts(ours, picture.conduct, self._instance), picture.found)

    def used(self) -> Sequence[AccountUse]:
        return self._accounts.used()

    def account_of(self, kind: str, name: str) -> str:
        return department_account(name) if kind == "department" else project_account(name)

    def _look(self) -> Picture:
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
