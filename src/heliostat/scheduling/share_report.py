"""Fair-share report: share and usage of each department, project and user."""

from dataclasses import dataclass, replace

import numpy as np

from heliostat.models import Project
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.queue_order import current_share_levels
from heliostat.scheduling.snapshot import Snapshot

_KINDS = ("department", "project", "user")


@dataclass(frozen=True, slots=True)
class AccountShare:
    """A department, project or user."""

    kind: str  # department, project, user
    name: str
    share: int  # set by an admin; 1 for every user
    entitled: float | None = None  # fraction of the cluster; None: not used recently
    usage: float = 0.0  # GPU-hours at the policy's charge rates: past usage decays, running jobs count in full
    ratio: float = 0.0  # usage as a multiple of the share
    children: tuple["AccountShare", ...] = ()
    reserved: float = 0.0  # the part of the usage that running jobs have not used yet
    credit: float = 0.0  # of a user: GPU-hours of the last week that are not charged


def build_share_report(snapshot: Snapshot, policy: SchedulingPolicy) -> tuple[AccountShare, ...]:
    """Departments by name, with their projects and the users with recent usage or pending jobs."""
    names = snapshot.accounts.departments.keys() | set(snapshot.share_tree.departments)
    builder = _ReportBuilder(snapshot, policy)
    return tuple(builder.department(name) for name in sorted(names))


class _ReportBuilder:
    def __init__(self, snapshot: Snapshot, policy: SchedulingPolicy) -> None:
        self._accounts, self._tree = snapshot.accounts, snapshot.share_tree
        self._levels = current_share_levels(snapshot, policy) if snapshot.share_tree.leaves else None
        self._reserved = snapshot.reserved_by_leaf
        used = set(snapshot.share_tree.projects)
        self._projects: dict[str, list[Project]] = {}
        for name in sorted(self._accounts.projects.keys() | used):
            project = self._accounts.project_or_default(name)
            self._projects.setdefault(project.department, []).append(project)

    def department(self, name: str) -> AccountShare:
        share = self._accounts.department_or_default(name).share
        index = _index_of(self._tree.departments, name)
        account = self._with_usage(AccountShare("department", name, share), index)
        entitled = None if index is None else float(self._tree.department_shares[index])
        children = tuple(self._project(project, entitled) for project in self._projects.get(name, ()))
        return replace(account, entitled=entitled, children=children)

    def _project(self, project: Project, parent_entitled: float | None) -> AccountShare:
        index = _index_of(self._tree.projects, project.name)
        account = self._with_usage(AccountShare("project", project.name, project.share), index)
        if index is None or parent_entitled is None:
            return account
        entitled = parent_entitled * project.share / self._sibling_shares(project)
        users = [leaf for leaf, (name, _) in enumerate(self._tree.leaves) if name == project.name]
        children = [
            self._with_usage(AccountShare("user", self._tree.leaves[leaf][1], 1, entitled / len(users)), leaf)
            for leaf in users
        ]
        return replace(account, entitled=entitled, children=tuple(sorted(children, key=lambda user: user.name)))

    def _sibling_shares(self, project: Project) -> int:
        """Sum over all projects of its department that are in use, itself included."""
        siblings = (self._accounts.project_or_default(name) for name in self._tree.projects)
        return sum(sibling.share for sibling in siblings if sibling.department == project.department)

    def _with_usage(self, account: AccountShare, index: int | None) -> AccountShare:
        if index is None or self._levels is None:
            return account
        level = self._levels[_KINDS.index(account.kind)]
        reserved = np.bincount(level.account_of_leaf, self._reserved, len(level.usage))[index]
        ratio = float(level.usage_ratio[index])
        return replace(account, usage=float(level.usage[index]), reserved=float(reserved), ratio=ratio)


def _index_of(names: tuple[str, ...], name: str) -> int | None:
    return names.index(name) if name in names else None
