"""Fair share over departments > projects > users: who has had more than is theirs."""

from dataclasses import dataclass

import numpy as np

from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.share_accounts import ShareAccounts

Leaf = tuple[str, str]  # project, user
_SOME = 1e-9  # GPU-hours: nobody's part is nothing
_WEIGHTS = (0.5, 0.3, 0.2)  # of being over the share as department, project, user


@dataclass(frozen=True, slots=True)
class FairShareTree:
    """The accounts by number. A leaf is a user in a project."""

    leaves: tuple[Leaf, ...]
    projects: tuple[str, ...]
    departments: tuple[str, ...]
    project_of: Array  # by leaf
    department_of: Array  # by leaf
    department_of_project: Array  # by project: its department
    department_shares: Array  # of everything; they add up to 1
    project_shares: Array  # of its department
    leaf_shares: Array  # of its project


@dataclass(frozen=True, slots=True)
class ShareLevel:
    """One level of the tree: what each account there used, and what would be its part."""

    account_of_leaf: Array  # by leaf
    usage: Array  # by account
    entitled_usage: Array  # by account: of what was used by it and its siblings, how much is its own by right

    @property
    def usage_ratio(self) -> Array:
        """1.0: has used just its share."""
        return self.usage / self.entitled_usage


def build_fair_share_tree(leaves: tuple[Leaf, ...], accounts: ShareAccounts) -> FairShareTree:
    projects = tuple(dict.fromkeys(project for project, _ in leaves))
    home = {project: accounts.project_or_default(project).department for project in projects}
    departments = tuple(dict.fromkeys(home.values()))
    number_of = {name: number for number, name in enumerate(projects)}
    department_number = {name: number for number, name in enumerate(departments)}
    project_of = np.array([number_of[project] for project, _ in leaves], np.int32)
    home_of = np.array([department_number[home[project]] for project in projects], np.int32)
    shares = np.array([accounts.department_or_default(name).share for name in departments], float)
    return FairShareTree(
        leaves,
        projects,
        departments,
        project_of,
        home_of[project_of],
        home_of,
        shares / max(shares.sum(), 1e-9),
        _parts(
            home_of,
            np.array([accounts.project_or_default(name).share for name in projects], float),
            len(departments),
        ),
        _parts(project_of, np.ones(len(leaves)), len(projects)),
    )


def compute_share_levels(
    tree: FairShareTree, usage: Array, floor: float
) -> tuple[ShareLevel, ShareLevel, ShareLevel]:
    """Departments, projects, users. The floor is usage that everybody is thought to have in common: as long as
    little was used, differences mean little."""
    per_department = np.bincount(tree.department_of, usage, len(tree.departments))
    per_project = np.bincount(tree.project_of, usage, len(tree.projects))
    floors = tree.department_shares * floor
    top = tree.department_shares * (per_department.sum() + floor)
    middle = tree.project_shares * (per_department + floors)[tree.department_of_project]
    floors = tree.project_shares * floors[tree.department_of_project]
    bottom = tree.leaf_shares * (per_project + floors)[tree.project_of]
    return (
        ShareLevel(tree.department_of, per_department, np.maximum(top, _SOME)),
        ShareLevel(tree.project_of, per_project, np.maximum(middle, _SOME)),
        ShareLevel(np.arange(len(tree.leaves), dtype=np.int32), usage, np.maximum(bottom, _SOME)),
    )


def level_weights(level_of: tuple[ShareLevel, ShareLevel, ShareLevel]) -> tuple[float, ...]:
    """How much each level counts: those at which nobody has siblings say nothing."""
    heard = [importance * (len(level.usage) > 1) for level, importance in zip(level_of, _WEIGHTS, strict=True)]
    return tuple(importance / (sum(heard) or 1.0) for importance in heard)


def compute_share_ratios(
    level_of: tuple[ShareLevel, ShareLevel, ShareLevel], extra: tuple[Array, Array, Array], leaf: Array
) -> Array:
    """For each of these leaves, were it charged this much more at each level: 1.0 is just its share. A level at
    which nobody has siblings says nothing."""
    total = np.zeros(len(leaf))
    weight = 0.0
    for level, more, importance in zip(level_of, extra, _WEIGHTS, strict=True):
        if len(level.usage) > 1:
            account = level.account_of_leaf[leaf]
            total += importance * (level.usage[account] + more) / level.entitled_usage[account]
            weight += importance
    return total / weight if weight else total


def _parts(parent: Array, shares: Array, parents: int) -> Array:
    """Of its parent's, by its share."""
    siblings = np.bincount(parent, shares, parents)
    return np.asarray(shares / np.maximum(siblings, 1e-9)[parent])
