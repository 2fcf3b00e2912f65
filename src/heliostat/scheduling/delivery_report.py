"""Delivery report: what departments, projects and users were entitled to in a period, and what they received."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from heliostat.models import JobSpan, Project
from heliostat.scheduling.entitlement import compute_entitlement
from heliostat.scheduling.fair_share_tree import FairShareTree, build_fair_share_tree
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.queue_history import build_queue_history
from heliostat.scheduling.queue_order import HOUR_SECONDS
from heliostat.scheduling.share_accounts import ShareAccounts

_EARLIER_HALF_LIVES = 2
_MAX_EARLIER_HOURS = 28 * 24
_LEAST_DEMAND = 1e-8  # GPU-hours; less is none


@dataclass(frozen=True, slots=True)
class DeliveryPeriod:
    """In steps of whole days; the last one may be shorter."""

    start: datetime
    end: datetime
    step_days: int


@dataclass(frozen=True, slots=True)
class AccountDelivery:
    """A department, project or user. Amounts are charged GPU-hours, one for each step of the period."""

    kind: str  # department, project, user
    name: str
    share: int  # set by an admin; 1 for every user
    share_fraction: float | None  # of the cluster, among those that asked for something; None: it did not
    entitled: tuple[float, ...]
    delivered: tuple[float, ...]
    children: tuple["AccountDelivery", ...] = ()

    @property
    def ratio(self) -> float | None:
        """Delivered as a multiple of entitled. None: it was entitled to nothing."""
        entitled = sum(self.entitled)
        return sum(self.delivered) / entitled if entitled > _LEAST_DEMAND else None


def history_start(period: DeliveryPeriod, policy: SchedulingPolicy) -> datetime:
    """Spans since then are needed: what an account received before the period affects what it is entitled to."""
    hours = _EARLIER_HALF_LIVES * policy.half_life_seconds / HOUR_SECONDS
    return period.start - timedelta(hours=int(min(hours, _MAX_EARLIER_HOURS)))


def build_delivery_report(
    spans: Iterable[JobSpan], period: DeliveryPeriod, accounts: ShareAccounts, policy: SchedulingPolicy
) -> tuple[AccountDelivery, ...]:
    """Departments by name, with their projects and the users who asked for something."""
    first = history_start(period, policy)
    history = build_queue_history(spans, first, period.end, accounts, policy)
    entitled = compute_entitlement(history, policy.half_life_seconds / HOUR_SECONDS)
    earlier_hours = int((period.start - first).total_seconds() / HOUR_SECONDS)
    steps = np.arange(earlier_hours, entitled.shape[1], period.step_days * 24)
    has_demand = history.demand[:, earlier_hours:].sum(axis=1) > _LEAST_DEMAND
    leaves = tuple(leaf for leaf, asked in zip(history.tree.leaves, has_demand, strict=True) if asked)
    amounts = (np.add.reduceat(values, steps, axis=1)[has_demand] for values in (entitled, history.delivered))
    builder = _ReportBuilder(accounts, build_fair_share_tree(leaves, accounts), *amounts)
    names = accounts.departments.keys() | set(builder.tree.departments)
    return tuple(builder.department(name) for name in sorted(names))


@dataclass(frozen=True, slots=True)
class _ReportBuilder:
    accounts: ShareAccounts
    tree: FairShareTree  # of those that asked for something
    entitled: Array  # by leaf and step
    delivered: Array  # by leaf and step

    def department(self, name: str) -> AccountDelivery:
        at, tree = _index_of(name, self.tree.departments), self.tree
        share = self.accounts.department_or_default(name).share
        fraction = float(tree.department_shares[at]) if at >= 0 else None
        names = self.accounts.projects.keys() | set(tree.projects)
        projects = (self.accounts.project_or_default(project) for project in sorted(names))
        children = tuple(self._project(project, fraction) for project in projects if project.department == name)
        return self._account(("department", name, share, fraction), tree.department_of == at, children)

    def _project(self, project: Project, fraction_of_department: float | None) -> AccountDelivery:
        at, tree = _index_of(project.name, self.tree.projects), self.tree
        if at < 0 or fraction_of_department is None:
            return self._account(("project", project.name, project.share, None), tree.project_of == -1)
        fraction = float(tree.project_shares[at]) * fraction_of_department
        leaves = sorted(np.flatnonzero(tree.project_of == at).tolist(), key=lambda leaf: tree.leaves[leaf])
        users = tuple(
            self._account(("user", tree.leaves[leaf][1], 1, fraction / len(leaves)), np.array([leaf]))
            for leaf in leaves
        )
        return self._account(("project", project.name, project.share, fraction), tree.project_of == at, users)

    def _account(
        self,
        described: tuple[str, str, int, float | None],
        leaves: Array,
        children: tuple[AccountDelivery, ...] = (),
    ) -> AccountDelivery:
        entitled, delivered = (
            tuple(values[leaves].sum(axis=0).tolist()) for values in (self.entitled, self.delivered)
        )
        return AccountDelivery(*described, entitled, delivered, children)


def _index_of(name: str, names: tuple[str, ...]) -> int:
    """-1: it is not among them."""
    return names.index(name) if name in names else -1
