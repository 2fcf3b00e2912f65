"""Fair-share tree of departments, projects and users, and each account's usage relative to its share."""

from dataclasses import dataclass

import numpy as np

from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.share_accounts import ShareAccounts

Leaf = tuple[str, str]  # project, user
_MIN_ENTITLED = 1e-9  # GPU-hours: avoids division by zero


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
    user_of: Array  # by leaf: the same number for all projects of a user


@dataclass(frozen=True, slots=True)
class ShareLevel:
    """Usage and entitled usage of the accounts on one level of the tree."""

    account_of_leaf: Array  # by leaf
    usage: Array  # by account
    entitled_usage: Array  # by account: its share of the usage of itself and its siblings

    @property
    def usage_ratio(self) -> Array:
        """1.0: exactly its share."""
        return self.usage / self.entitled_usage


def build_fair_share_tree(leaves: tuple[Leaf, ...], accounts: ShareAccounts) -> FairShareTree:
    projects = tuple(dict.fromkeys(project for project, _ in leaves))
    department_of_name = {project: accounts.project_or_default(project).department for project in projects}
    departments = tuple(dict.fromkeys(department_of_name.values()))
    number_of = {name: number for number, name in enumerate(projects)}
    user_number = {name: number for number, name in enumerate(dict.fromkeys(user for _, user in leaves))}
    department_number = {name: number for number, name in enumerate(departments)}
    project_of = np.array([number_of[project] for project, _ in leaves], np.int32)
    department_of_project = np.array(
        [department_number[department_of_name[project]] for project in projects], np.int32
    )
    shares = np.array([accounts.department_or_default(name).share for name in departments], float)
    return FairShareTree(
        leaves,
        projects,
        departments,
        project_of,
        department_of_project[project_of],
        department_of_project,
        shares / max(shares.sum(), 1e-9),
        _fractions_of_parent(
            department_of_project,
            np.array([accounts.project_or_default(name).share for name in projects], float),
            len(departments),
        ),
        _fractions_of_parent(project_of, np.ones(len(leaves)), len(projects)),
        np.array([user_number[user] for _, user in leaves], np.int32),
    )


def compute_share_levels(
    tree: FairShareTree, usage: Array, floor: float
) -> tuple[ShareLevel, ShareLevel, ShareLevel]:
    """Departments, projects, users. `floor` is added to the total usage, so that small absolute differences have
    little effect while the cluster is hardly used."""
    per_department = np.bincount(tree.department_of, usage, len(tree.departments))
    per_project = np.bincount(tree.project_of, usage, len(tree.projects))
    floors = tree.department_shares * floor
    top = tree.department_shares * (per_department.sum() + floor)
    middle = tree.project_shares * (per_department + floors)[tree.department_of_project]
    floors = tree.project_shares * floors[tree.department_of_project]
    bottom = tree.leaf_shares * (per_project + floors)[tree.project_of]
    return (
        ShareLevel(tree.department_of, per_department, np.maximum(top, _MIN_ENTITLED)),
        ShareLevel(tree.project_of, per_project, np.maximum(middle, _MIN_ENTITLED)),
        ShareLevel(np.arange(len(tree.leaves), dtype=np.int32), usage, np.maximum(bottom, _MIN_ENTITLED)),
    )


def _fractions_of_parent(parent: Array, shares: Array, parents: int) -> Array:
    """Fraction of each account among its siblings."""
    siblings = np.bincount(parent, shares, parents)
    return np.asarray(shares / np.maximum(siblings, 1e-9)[parent])
