"""The fair-share tree as the caller may see it: all departments and projects, and the people of their own ones.

With Slurm it is by Slurm's own count, in which jobs of plain `sbatch` are too.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from heliostat.engines.account_sync import AccountSync, AccountUsage
from heliostat.engines.contract import SyncsAccounts
from heliostat.models import Caller, User
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.scheduling.share_report import AccountShare, build_share_report
from heliostat.services.context import Context
from heliostat.store import accounts

__all__ = ["COUNTED_BY_HELIOSTAT", "AccountShare", "share_tree", "slurm_share_tree", "usage_source"]
OTHER_SLURM_ACCOUNTS = "elsewhere in Slurm"
COUNTED_BY_HELIOSTAT = "heliostat"


def share_tree(context: Context, caller: Caller) -> tuple[AccountShare, ...]:
    """Departments, as the queue sees them now."""
    tree = _tree(context)
    return tuple(
        replace(one, children=tuple(_seen(project, caller.user) for project in one.children)) for one in tree
    )


def usage_source(context: Context) -> str:
    """Whose count of usage it is: ours, or that of an engine which also counts jobs that came without us."""
    return context.engine.name if isinstance(context.engine, SyncsAccounts) else COUNTED_BY_HELIOSTAT


def _tree(context: Context) -> tuple[AccountShare, ...]:
    if isinstance(context.engine, SyncsAccounts):
        with context.store.read() as conn:
            names = {user.unix_user: user.name for user in accounts.list_users(conn) if user.unix_user}
        return slurm_share_tree(context.engine.account_sync, context.scheduling_rules.share_accounts(), names)
    board = context.controller.copy_queue_state()
    return build_share_report(board.snapshot(context.now()), board.policy)


def _seen(project: AccountShare, user: User) -> AccountShare:
    if user.is_admin or user.is_member_of(project.name):
        return project
    return replace(project, children=tuple(one for one in project.children if one.name == user.name))


def slurm_share_tree(
    sync: AccountSync, accounts: ShareAccounts, names: Mapping[str, str]
) -> tuple[AccountShare, ...]:
    """Departments by name, then what is in no account of theirs. `names`: our users by their Unix user.

    Points stay 0: how much a share weighs is Slurm's to say.
    """
    used = sync.account_usage()
    count = _Count(used, sync.account_name)
    found = [_department(name, accounts, count, names) for name in sorted(accounts.departments)]
    known = {sync.account_name("department", name) for name in accounts.departments}
    known |= {sync.account_name("project", name) for name in accounts.projects}
    others = [one for one in used if one.parent == "root" and (one.user or one.account not in known)]
    if any(one.raw_usage for one in others):
        found.append(_elsewhere(others, count))
    return tuple(found)


class _Count:
    def __init__(self, used: Sequence[AccountUsage], account_of: Callable[[str, str], str]) -> None:
        self.account_of = account_of
        self._by_place = {(one.account, one.user): one for one in used}
        self._people: dict[str, list[AccountUsage]] = defaultdict(list)
        self._sums: dict[str, float] = defaultdict(float)
        for one in used:
            self._sums[one.parent] += one.raw_usage
            if one.user:
                self._people[one.account].append(one)

    def judged(self, one: AccountShare, account: str, user: str = "") -> AccountShare:
        """As it is if Slurm does not have it."""
        found = self._by_place.get((account, user))
        if found is None:
            return one
        ratio = self.part_of_used(found) / found.share_fraction if found.share_fraction else 0.0
        return replace(one, entitled=self.entitled(found), usage=found.gpu_hours, ratio=ratio)

    def part_of_used(self, one: AccountUsage) -> float:
        """Of all that was used below the same parent."""
        total = self._sums[one.parent]
        return one.raw_usage / total if total else 0.0

    def entitled(self, one: AccountUsage) -> float:
        """Of the whole cluster."""
        above = self._by_place.get((one.parent, ""))
        return (
            one.share_fraction if above is None or not above.parent else one.share_fraction * self.entitled(above)
        )

    def people(self, account: str) -> list[AccountUsage]:
        return self._people[account]


def _department(name: str, accounts: ShareAccounts, count: _Count, names: Mapping[str, str]) -> AccountShare:
    one = count.judged(
        AccountShare("department", name, accounts.department_or_default(name).share),
        count.account_of("department", name),
    )
    inside = sorted(project for project, found in accounts.projects.items() if found.department == name)
    return replace(one, children=tuple(_project(project, accounts, count, names) for project in inside))


def _project(name: str, accounts: ShareAccounts, count: _Count, names: Mapping[str, str]) -> AccountShare:
    account = count.account_of("project", name)
    one = count.judged(AccountShare("project", name, accounts.project_or_default(name).share), account)
    users = [
        count.judged(AccountShare("user", names.get(found.user, found.user), 1), account, found.user)
        for found in count.people(account)
    ]
    return replace(one, children=tuple(sorted(users, key=lambda user: user.name)))


def _elsewhere(others: Sequence[AccountUsage], count: _Count) -> AccountShare:
    entitled = sum(count.entitled(one) for one in others)
    ratio = sum(count.part_of_used(one) for one in others) / entitled if entitled else 0.0
    return AccountShare(
        "department", OTHER_SLURM_ACCOUNTS, 1, entitled, sum(one.gpu_hours for one in others), ratio
    )
