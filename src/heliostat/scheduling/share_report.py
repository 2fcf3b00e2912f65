"""The fair-share tree as the queue sees it now: what each is entitled to, has used, and loses by that."""

from dataclasses import dataclass, replace

from heliostat.models import Project
from heliostat.scheduling.fair_share_tree import level_weights
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.queue_order import MAX_SHARE_RATIO, current_share_levels
from heliostat.scheduling.snapshot import Snapshot

_KINDS = ("department", "project", "user")


@dataclass(frozen=True, slots=True)
class AccountShare:
    """A department, project or user."""

    kind: str  # department, project, user
    name: str
    share: int  # as an admin has set it; users of a project all have 1
    entitled: float | None = None  # the part of the cluster that is theirs by right; None: not in use lately
    usage: float = (
        0.0  # GPU-hours at the charges of the policy: past ones fade, those of running jobs count in full
    )
    ratio: float = 0.0  # how many times their share that is
    points: float = 0.0  # that their jobs lose by it, with what is above them
    children: tuple["AccountShare", ...] = ()


def build_share_report(snapshot: Snapshot, policy: SchedulingPolicy) -> tuple[AccountShare, ...]:
    """Departments by name, with their projects and the users who used something lately or wait."""
    names = snapshot.accounts.departments.keys() | set(snapshot.share_tree.departments)
    view = _View(snapshot, policy)
    return tuple(view.department(name) for name in sorted(names))


class _View:
    def __init__(self, snapshot: Snapshot, policy: SchedulingPolicy) -> None:
        self._accounts, self._tree, self._policy = snapshot.accounts, snapshot.share_tree, policy
        self._levels = current_share_levels(snapshot, policy) if snapshot.share_tree.leaves else None
        self._weights = level_weights(self._levels) if self._levels else (0.0, 0.0, 0.0)
        self._most = policy.share_weight * MAX_SHARE_RATIO
        used = set(snapshot.share_tree.projects)
        self._projects: dict[str, list[Project]] = {}
        for name in sorted(self._accounts.projects.keys() | used):
            project = self._accounts.project_or_default(name)
            self._projects.setdefault(project.department, []).append(project)

    def department(self, name: str) -> AccountShare:
        share = self._accounts.department_or_default(name).share
        place = _place(self._tree.departments, name)
        one = self._judged(AccountShare("department", name, share), place, 0.0)
        entitled = None if place is None else float(self._tree.department_shares[place])
        below = tuple(self._project(project, one.points, entitled) for project in self._projects.get(name, ()))
        return replace(one, entitled=entitled, children=below)

    def _project(self, project: Project, lost: float, of: float | None) -> AccountShare:
        place = _place(self._tree.projects, project.name)
        one = self._judged(AccountShare("project", project.name, project.share), place, lost)
        if place is None or of is None:
            return one
        entitled = of * project.share / self._shares_beside(project)
        users = [leaf for leaf, (name, _) in enumerate(self._tree.leaves) if name == project.name]
        below = [
            self._judged(
                AccountShare("user", self._tree.leaves[leaf][1], 1, entitled / len(users)), leaf, one.points
            )
            for leaf in users
        ]
        return replace(one, entitled=entitled, children=tuple(sorted(below, key=lambda user: user.name)))

    def _shares_beside(self, project: Project) -> int:
        """Of all projects of its department that are in use, itself included."""
        beside = (self._accounts.project_or_default(name) for name in self._tree.projects)
        return sum(one.share for one in beside if one.department == project.department)

    def _judged(self, one: AccountShare, place: int | None, lost: float) -> AccountShare:
        """With what is known at its place of its level, and what is lost already by what is above it."""
        if place is None or self._levels is None:
            return replace(one, points=lost)
        depth = _KINDS.index(one.kind)
        level = self._levels[depth]
        ratio = float(level.usage_ratio[place])
        points = lost + self._policy.share_weight * self._weights[depth] * ratio
        return replace(one, usage=float(level.usage[place]), ratio=ratio, points=min(points, self._most))


def _place(names: tuple[str, ...], name: str) -> int | None:
    return names.index(name) if name in names else None
