"""The fair-share tree for a caller: all departments and projects, and the users of the caller's projects.

With Slurm, the usage comes from Slurm's accounting, which includes jobs submitted with plain `sbatch`.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from heliostat.engines.account_sync import AccountSync, AccountUsage
from heliostat.engines.contract import SyncsAccounts
from heliostat.models import Caller, User
from heliostat.scheduling.delivery_report import AccountDelivery
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.scheduling.share_report import AccountShare, build_share_report
from heliostat.services.context import Context
from heliostat.services.idle_policy import CREDIT_PERIOD
from heliostat.store import accounts
from heliostat.store.idle_jobs import sum_credit

__all__ = [
    "COUNTED_BY_HELIOSTAT",
    "AccountShare",
    "hide_other_users",
    "share_tree",
    "slurm_share_tree",
    "usage_source",
]
Account = TypeVar("Account", AccountShare, AccountDelivery)
OTHER_SLURM_ACCOUNTS = "elsewhere in Slurm"
COUNTED_BY_HELIOSTAT = "heliostat"


def share_tree(context: Context, caller: Caller) -> tuple[AccountShare, ...]:
    """The departments, with the usage that the queue counts now."""
    return hide_other_users(_with_credit(context, _tree(context)), caller.user)


def hide_other_users(tree: Sequence[Account], user: User) -> tuple[Account, ...]:
    """The departments, without other users of projects of which the user is not a member."""
    return tuple(
        replace(department, children=tuple(_visible(project, user) for project in department.children))
        for department in tree
    )


def usage_source(context: Context) -> str:
    """Where the usage is counted: by Heliostat, or by an engine that also counts foreign jobs."""
    return context.engine.name if isinstance(context.engine, SyncsAccounts) else COUNTED_BY_HELIOSTAT


def _tree(context: Context) -> tuple[AccountShare, ...]:
    if isinstance(context.engine, SyncsAccounts):
        with context.store.read() as conn:
            names = {user.unix_user: user.name for user in accounts.list_users(conn) if user.unix_user}
        return slurm_share_tree(context.engine.account_sync, context.scheduling_rules.share_accounts(), names)
    queue_state = context.controller.copy_queue_state()
    return build_share_report(queue_state.snapshot(context.now()), queue_state.policy)


def _with_credit(context: Context, tree: tuple[AccountShare, ...]) -> tuple[AccountShare, ...]:
    with context.store.read() as conn:
        credit = sum_credit(conn, context.now() - CREDIT_PERIOD)
    if not credit:
        return tree
    return tuple(
        replace(department, children=tuple(_project_with_credit(one, credit) for one in department.children))
        for department in tree
    )


def _project_with_credit(project: AccountShare, credit: Mapping[tuple[str, str], float]) -> AccountShare:
    users = (replace(user, credit=credit.get((project.name, user.name), 0.0)) for user in project.children)
    return replace(project, children=tuple(users))


def _visible(project: Account, user: User) -> Account:
    if user.is_admin or user.is_member_of(project.name):
        return project
    return replace(project, children=tuple(child for child in project.children if child.name == user.name))


def slurm_share_tree(
    sync: AccountSync, accounts: ShareAccounts, names: Mapping[str, str]
) -> tuple[AccountShare, ...]:
    """Departments by name, then the usage of other Slurm accounts. `names`: users by their Unix user."""
    used = sync.account_usage()
    count = _UsageIndex(used, sync.account_name)
    departments = [_department(name, accounts, count, names) for name in sorted(accounts.departments)]
    known = {sync.account_name("department", name) for name in accounts.departments}
    known |= {sync.account_name("project", name) for name in accounts.projects}
    others = [entry for entry in used if entry.parent == "root" and (entry.user or entry.account not in known)]
    if any(entry.raw_usage for entry in others):
        departments.append(_other_accounts(others, count))
    return tuple(departments)


class _UsageIndex:
    def __init__(self, used: Sequence[AccountUsage], account_of: Callable[[str, str], str]) -> None:
        self.account_of = account_of
        self._by_account_and_user = {(entry.account, entry.user): entry for entry in used}
        self._entries_by_account: dict[str, list[AccountUsage]] = defaultdict(list)
        self._sums: dict[str, float] = defaultdict(float)
        for entry in used:
            self._sums[entry.parent] += entry.raw_usage
            if entry.user:
                self._entries_by_account[entry.account].append(entry)

    def with_usage(self, share: AccountShare, account: str, user: str = "") -> AccountShare:
        """Unchanged if the account does not exist in Slurm."""
        entry = self._by_account_and_user.get((account, user))
        if entry is None:
            return share
        ratio = self.fraction_of_used(entry) / entry.share_fraction if entry.share_fraction else 0.0
        return replace(share, entitled=self.entitled(entry), usage=entry.gpu_hours, ratio=ratio)

    def fraction_of_used(self, entry: AccountUsage) -> float:
        """The account's fraction of all usage below the same parent."""
        total = self._sums[entry.parent]
        return entry.raw_usage / total if total else 0.0

    def entitled(self, entry: AccountUsage) -> float:
        """The fraction of the whole cluster."""
        above = self._by_account_and_user.get((entry.parent, ""))
        return (
            entry.share_fraction
            if above is None or not above.parent
            else entry.share_fraction * self.entitled(above)
        )

    def users(self, account: str) -> list[AccountUsage]:
        return self._entries_by_account[account]


def _department(name: str, accounts: ShareAccounts, count: _UsageIndex, names: Mapping[str, str]) -> AccountShare:
    share = count.with_usage(
        AccountShare("department", name, accounts.department_or_default(name).share),
        count.account_of("department", name),
    )
    projects = sorted(key for key, project in accounts.projects.items() if project.department == name)
    return replace(share, children=tuple(_project(project, accounts, count, names) for project in projects))


def _project(name: str, accounts: ShareAccounts, count: _UsageIndex, names: Mapping[str, str]) -> AccountShare:
    account = count.account_of("project", name)
    share = count.with_usage(AccountShare("project", name, accounts.project_or_default(name).share), account)
    users = [
        count.with_usage(AccountShare("user", names.get(entry.user, entry.user), 1), account, entry.user)
        for entry in count.users(account)
    ]
    return replace(share, children=tuple(sorted(users, key=lambda user: user.name)))


def _other_accounts(others: Sequence[AccountUsage], count: _UsageIndex) -> AccountShare:
    entitled = sum(count.entitled(entry) for entry in others)
    ratio = sum(count.fraction_of_used(entry) for entry in others) / entitled if entitled else 0.0
    usage = sum(entry.gpu_hours for entry in others)
    return AccountShare("department", OTHER_SLURM_ACCOUNTS, 1, entitled, usage, ratio=ratio)
