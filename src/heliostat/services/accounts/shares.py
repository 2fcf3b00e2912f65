"""The fair-share tree as the caller may see it: all departments and projects, and the people of their own ones.

With Slurm it is by Slurm's own count, in which jobs of plain `sbatch` are too.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from heliostat.engines.accounts import AccountSync, AccountUse
from heliostat.engines.contract import SyncsAccounts
from heliostat.models import Caller, User
from heliostat.scheduling.accounts import Accounts
from heliostat.scheduling.standing import Account, standing
from heliostat.services.context import Context
from heliostat.store import people

__all__ = ["OURS", "Account", "counted_by", "share_tree", "slurm_standing"]
ELSEWHERE = "elsewhere in Slurm"
OURS = "heliostat"


def share_tree(context: Context, caller: Caller) -> tuple[Account, ...]:
    """Departments, as the queue sees them now."""
    tree = _tree(context)
    return tuple(replace(one, below=tuple(_seen(project, caller.user) for project in one.below)) for one in tree)


def counted_by(context: Context) -> str:
    """Whose count of usage it is: ours, or that of an engine which also counts jobs that came without us."""
    return context.engine.name if isinstance(context.engine, SyncsAccounts) else OURS


def _tree(context: Context) -> tuple[Account, ...]:
    if isinstance(context.engine, SyncsAccounts):
        with context.store.read() as conn:
            names = {user.unix_user: user.name for user in people.list_users(conn) if user.unix_user}
        return slurm_standing(context.engine.account_sync, context.rules.accounts(), names)
    board = context.controller.fork()
    return standing(board.snapshot(context.now()), board.policy)


def _seen(project: Account, user: User) -> Account:
    if user.is_admin or user.belongs_to(project.name):
        return project
    return replace(project, below=tuple(one for one in project.below if one.name == user.name))


def slurm_standing(sync: AccountSync, accounts: Accounts, names: Mapping[str, str]) -> tuple[Account, ...]:
    """Departments by name, then what is in no account of theirs. `names`: our users by their Unix user.

    Points stay 0: how much a share weighs is Slurm's to say.
    """
    used = sync.used()
    count = _Count(used, sync.account_of)
    found = [_department(name, accounts, count, names) for name in sorted(accounts.departments)]
    known = {sync.account_of("department", name) for name in accounts.departments}
    known |= {sync.account_of("project", name) for name in accounts.projects}
    others = [one for one in used if one.parent == "root" and (one.user or one.account not in known)]
    if any(one.raw for one in others):
        found.append(_elsewhere(others, count))
    return tuple(found)


class _Count:
    def __init__(self, used: Sequence[AccountUse], account_of: Callable[[str, str], str]) -> None:
        self.account_of = account_of
        self._by_place = {(one.account, one.user): one for one in used}
        self._people: dict[str, list[AccountUse]] = defaultdict(list)
        self._sums: dict[str, float] = defaultdict(float)
        for one in used:
            self._sums[one.parent] += one.raw
            if one.user:
                self._people[one.account].append(one)

    def judged(self, one: Account, account: str, user: str = "") -> Account:
        """As it is if Slurm does not have it."""
        found = self._by_place.get((account, user))
        if found is None:
            return one
        ratio = self.part_of_used(found) / found.part if found.part else 0.0
        return replace(one, entitled=self.entitled(found), usage=found.gpu_hours, ratio=ratio)

    def part_of_used(self, one: AccountUse) -> float:
        """Of all that was used below the same parent."""
        total = self._sums[one.parent]
        return one.raw / total if total else 0.0

    def entitled(self, one: AccountUse) -> float:
        """Of the whole cluster."""
        above = self._by_place.get((one.parent, ""))
        return one.part if above is None or not above.parent else one.part * self.entitled(above)

    def people(self, account: str) -> list[AccountUse]:
        return self._people[account]


def _department(name: str, accounts: Accounts, count: _Count, names: Mapping[str, str]) -> Account:
    one = count.judged(
        Account("department", name, accounts.department(name).share), count.account_of("department", name)
    )
    inside = sorted(project for project, found in accounts.projects.items() if found.department == name)
    return replace(one, below=tuple(_project(project, accounts, count, names) for project in inside))


def _project(name: str, accounts: Accounts, count: _Count, names: Mapping[str, str]) -> Account:
    account = count.account_of("project", name)
    one = count.judged(Account("project", name, accounts.project(name).share), account)
    people = [
        count.judged(Account("user", names.get(found.user, found.user), 1), account, found.user)
        for found in count.people(account)
    ]
    return replace(one, below=tuple(sorted(people, key=lambda user: user.name)))


def _elsewhere(others: Sequence[AccountUse], count: _Count) -> Account:
    entitled = sum(count.entitled(one) for one in others)
    ratio = sum(count.part_of_used(one) for one in others) / entitled if entitled else 0.0
    return Account("department", ELSEWHERE, 1, entitled, sum(one.gpu_hours for one in others), ratio)
