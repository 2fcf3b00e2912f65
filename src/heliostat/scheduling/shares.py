"""Fair share over departments > projects > users: who has had more than is theirs."""

from dataclasses import dataclass

import numpy as np

from heliostat.scheduling.accounts import Accounts
from heliostat.scheduling.columns import Array

Leaf = tuple[str, str]  # project, user
_SOME = 1e-9  # GPU-hours: nobody's part is nothing
_WEIGHTS = (0.5, 0.3, 0.2)  # of being over the share as department, project, user


@dataclass(frozen=True, slots=True)
class Tree:
    """The accounts by number. A leaf is a user in a project."""

    leaves: tuple[Leaf, ...]
    projects: tuple[str, ...]
    departments: tuple[str, ...]
    project_of: Array  # by leaf
    department_of: Array  # by leaf
    home_of: Array  # by project: its department
    department_parts: Array  # of everything; they add up to 1
    project_parts: Array  # of its department
    leaf_parts: Array  # of its project


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
    project_of = np.array([number_of[project] for project, _ in leaves], np.int32)
    home_of = np.array([department_number[home[project]] for project in projects], np.int32)
    shares = np.array([accounts.department(name).share for name in departments], float)
    return Tree(
        leaves,
        projects,
        departments,
        project_of,
        home_of[project_of],
        home_of,
        shares / max(shares.sum(), 1e-9),
        _parts(home_of, np.array([accounts.project(name).share for name in projects], float), len(departments)),
        _parts(project_of, np.ones(len(leaves)), len(projects)),
    )


def levels(tree: Tree, usage: Array, floor: float) -> tuple[Level, Level, Level]:
    """Departments, projects, users. The floor is usage that everybody is thought to have in common: as long as
    little was used, differences mean little."""
    per_department = np.bincount(tree.department_of, usage, len(tree.departments))
    per_project = np.bincount(tree.project_of, usage, len(tree.projects))
    floors = tree.department_parts * floor
    top = tree.department_parts * (per_department.sum() + floor)
    middle = tree.project_parts * (per_department + floors)[tree.home_of]
    floors = tree.project_parts * floors[tree.home_of]
    bottom = tree.leaf_parts * (per_project + floors)[tree.project_of]
    return (
        Level(tree.department_of, per_department, np.maximum(top, _SOME)),
        Level(tree.project_of, per_project, np.maximum(middle, _SOME)),
        Level(np.arange(len(tree.leaves), dtype=np.int32), usage, np.maximum(bottom, _SOME)),
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


def _parts(parent: Array, shares: Array, parents: int) -> Array:
    """Of its parent's, by its share."""
    siblings = np.bincount(parent, shares, parents)
    return np.asarray(shares / np.maximum(siblings, 1e-9)[parent])
