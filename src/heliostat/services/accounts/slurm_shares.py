"""The fair-share tree by Slurm's own count, in which jobs of plain `sbatch` are too: pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from heliostat.engines.slurm.accounts.plan import department_account, project_account
from heliostat.engines.slurm.accounts.sacctmgr import UsedShare
from heliostat.scheduling.accounts import Accounts
from heliostat.scheduling.standing import Account

ELSEWHERE = "elsewhere in Slurm"


def slurm_standing(used: Sequence[UsedShare], accounts: Accounts, names: Mapping[str, str]) -> tuple[Account, ...]:
    """Departments by name, then what is in no account of theirs. `names`: our users by their Unix user.

    Points stay 0: how much a share weighs is Slurm's to say.
    """
    count = _Count(used)
    found = [_department(name, accounts, count, names) for name in sorted(accounts.departments)]
    known = {department_account(name) for name in accounts.departments}
    known |= {project_account(name) for name in accounts.projects}
    others = [one for one in used if one.parent == "root" and (one.user or one.account not in known)]
    if any(one.raw for one in others):
        found.append(_elsewhere(others, count))
    return tuple(found)


class _Count:
    def __init__(self, used: Sequence[UsedShare]) -> None:
        self._by_place = {(one.account, one.user): one for one in used}
        self._people: dict[str, list[UsedShare]] = defaultdict(list)
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

    def part_of_used(self, one: UsedShare) -> float:
        """Of all that was used below the same parent."""
        total = self._sums[one.parent]
        return one.raw / total if total else 0.0

    def entitled(self, one: UsedShare) -> float:
        """Of the whole cluster."""
        above = self._by_place.get((one.parent, ""))
        return one.part if above is None or not above.parent else one.part * self.entitled(above)

    def people(self, account: str) -> list[UsedShare]:
        return self._people[account]


def _department(name: str, accounts: Accounts, count: _Count, names: Mapping[str, str]) -> Account:
    one = count.judged(Account("department", name, accounts.department(name).share), department_account(name))
    inside = sorted(project for project, found in accounts.projects.items() if found.department == name)
    return replace(one, below=tuple(_project(project, accounts, count, names) for project in inside))


def _project(name: str, accounts: Accounts, count: _Count, names: Mapping[str, str]) -> Account:
    account = project_account(name)
    one = count.judged(Account("project", name, accounts.project(name).share), account)
    people = [
        count.judged(Account("user", names.get(found.user, found.user), 1), account, found.user)
        for found in count.people(account)
    ]
    return replace(one, below=tuple(sorted(people, key=lambda user: user.name)))


def _elsewhere(others: Sequence[UsedShare], count: _Count) -> Account:
    entitled = sum(count.entitled(one) for one in others)
    ratio = sum(count.part_of_used(one) for one in others) / entitled if entitled else 0.0
    return Account("department", ELSEWHERE, 1, entitled, sum(one.gpu_hours for one in others), ratio)
