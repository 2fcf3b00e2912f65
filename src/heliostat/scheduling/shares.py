"""Fair share over departments > projects > users: who has had more than is theirs."""

from dataclasses import dataclass

import numpy as np

from heliostat.scheduling.accounts import Accounts
from heliostat.scheduling.columns import Array

Leaf = tuple[str, str]  # project, user
_WEIGHTS = (0.5, 0.3, 0.2)  # of being over the share as department, project, user


@dataclass(frozen=True, slots=True)
class Tree:
    """The accounts by number. A leaf is a user in a project."""

    leaves: tuple[Leaf, ...]
    projects: tuple[str, ...]
    departments: tuple[str, ...]
    project_of: Array  # by leaf
    department_of: Array  # by leaf
    project_shares: Array
    department_shares: Array


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the tree: what each account there used, and what would be its part."""

    account_of: Array  # by leaf
    usage: Array  # by account
    part: Array  # by account: of what was used by it and its siblings, how much is its own by right

    @property
    def ratio(self) -> Array:
        """1.0: has used just its share."""
        return self.usage / self.part


def tree_of(leaves: tuple[Leaf, ...], accounts: Accounts) -> Tree:
    projects = tuple(dict.fromkeys(project for project, _ in leaves))
    home = {project: accounts.project(project).department for project in projects}
    departments = tuple(dict.fromkeys(home.values()))
    number_of = {name: number for number, name in enumerate(projects)}
    department_number = {name: number for number, name in enumerate(departments)}
    return Tree(
        leaves,
        projects,
        departments,
        np.array([number_of[project] for project, _ in leaves], np.int32),
        np.array([department_number[home[project]] for project, _ in leaves], np.int32),
        np.array([accounts.project(name).share for name in projects], float),
        np.array([accounts.department(name).share for name in departments], float),
    )


def levels(tree: Tree, usage: Array, floor: float) -> tuple[Level, Level, Level]:
    """Departments, projects, users. The floor is usage that everybody is thought to have in common: as long as
    little was used, differences mean little."""
    per_department = np.bincount(tree.department_of, usage, len(tree.departments))
    per_project = np.bincount(tree.project_of, usage, len(tree.projects))
    root = np.zeros(len(tree.departments), np.int32)
    in_department = np.zeros(len(tree.projects), np.int32)
    in_department[tree.project_of] = tree.department_of
    floors = _parts(root, tree.department_shares, np.array([floor]))
    top = _parts(root, tree.department_shares, np.array([usage.sum() + floor]))
    middle = _parts(in_department, tree.project_shares, per_department + floors)
    floors = _parts(in_department, tree.project_shares, floors)
    bottom = _parts(tree.project_of, np.ones(len(tree.leaves)), per_project + floors)
    return (
        Level(tree.department_of, per_department, top),
        Level(tree.project_of, per_project, middle),
        Level(np.arange(len(tree.leaves), dtype=np.int32), usage, bottom),
    )


def level_weights(level_of: tuple[Level, Level, Level]) -> tuple[float, ...]:
    """How much each level counts: those at which nobody has siblings say nothing."""
    heard = [importance * (len(level.usage) > 1) for level, importance in zip(level_of, _WEIGHTS, strict=True)]
    return tuple(importance / (sum(heard) or 1.0) for importance in heard)


def over_share(level_of: tuple[Level, Level, Level], extra: tuple[Array, Array, Array], leaf: Array) -> Array:
    """For each of these leaves, were it charged this much more at each level: 1.0 is just its share. A level at
    which nobody has siblings says nothing."""
    total = np.zeros(len(leaf))
    weight = 0.0
    for level, more, importance in zip(level_of, extra, _WEIGHTS, strict=True):
        if len(level.usage) > 1:
            account = level.account_of[leaf]
            total += importance * (level.usage[account] + more) / level.part[account]
            weight += importance
    return total / weight if weight else total


def _parts(parent: Array, shares: Array, parents_usage: Array) -> Array:
    """What of its parent's usage would be each one's own."""
    siblings = np.bincount(parent, shares, len(parents_usage))
    return np.maximum(parents_usage[parent] * shares / siblings[parent], 1e-9)
