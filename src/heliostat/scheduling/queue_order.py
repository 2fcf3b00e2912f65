"""The order of the queue.

Under the fair-share policy jobs are ordered by points. Twice the wait is one point more, and twice the size one
point less: a job of 10 GPU-hours has the same claim after ten hours as one of 1 GPU-hour after one. Those who have
used more than their share lose points, a high class gains some. The wait grows without bound and everything else
is bounded, so every job comes first some day. Only standing in the queue is waiting: being held is not.

Each job is judged as if those of the same people that stand before it had been charged already: 300 jobs of one
person do not keep back the 10 of another.
"""

import numpy as np

from heliostat.models import Job
from heliostat.scheduling.fair_share_tree import ShareLevel, compute_share_levels, compute_share_ratios
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.policy import QueueOrdering, SchedulingPolicy
from heliostat.scheduling.snapshot import Snapshot

HOUR_SECONDS = 3600.0
_POINTS_PER_PRIORITY = 3.0
_FIRST_HOUR = 1.0  # what a job that has just come is thought to have waited
_SMALLEST = 0.1  # GPU-hours: smaller jobs count like this
MAX_SHARE_RATIO = 8.0  # times the share: more makes no difference
_FLOOR_HOURS = 24.0
_RANKS = 128  # more than there are
_TIE = 1e-12  # of equals, the one submitted first


def static_priority_points(job: Job, policy: SchedulingPolicy, cost: float) -> float:
    """Those that do not change while it waits: for class, priority and size."""
    size = policy.size_weight * np.log2(cost + _SMALLEST)
    priority_class = policy.find_priority_class(job.priority_class)
    priority = job.priority if job.priority_everywhere else min(job.priority, 0)
    return float(priority_class.points + priority * _POINTS_PER_PRIORITY - size - job.id * _TIE)


def project_priority_points(job: Job) -> float:
    """For a priority that the manager of its project gave."""
    return 0.0 if job.priority_everywhere else max(job.priority, 0) * _POINTS_PER_PRIORITY


def sort_pending(snapshot: Snapshot, policy: SchedulingPolicy, now: float) -> Array:
    """The rows of the pending jobs, first come first. Those who may be sent away wait behind those who may send
    them: they would not run for long, and one who had to go would take the place back."""
    rows = snapshot.pending
    if policy.order is QueueOrdering.FAIR_SHARE:
        found = np.argsort(-priority_points(snapshot, policy, now))
    elif policy.order is QueueOrdering.SHORTEST_JOB_FIRST:
        found = np.lexsort((rows["job"], rows["limit"]))
    elif policy.order is QueueOrdering.LEAST_ATTAINED_SERVICE:
        found = np.lexsort((rows["job"], snapshot.usage_by_leaf[rows["leaf"]]))
    else:
        found = np.argsort(rows["job"])
    return _yielding(found, rows, policy)


def priority_points(snapshot: Snapshot, policy: SchedulingPolicy, now: float) -> Array:
    """By row; the highest goes first."""
    rows = snapshot.pending
    waited = np.maximum(now - rows["waiting"], 0.0) / HOUR_SECONDS + _FIRST_HOUR
    without_share = rows["points"] + np.log2(waited)
    ranked = _within_projects(without_share, snapshot)
    if not len(rows) or len(snapshot.share_tree.leaves) < 2:
        return ranked
    order = _yielding(np.argsort(-ranked), rows, policy)
    return _within_projects(
        without_share - policy.share_weight * share_ratios_by_row(snapshot, policy, order), snapshot
    )


def share_ratios_by_row(snapshot: Snapshot, policy: SchedulingPolicy, order: Array) -> Array:
    """By row: how many times their share its people have had, given what stands before it in this order."""
    rows, tree = snapshot.pending, snapshot.share_tree
    leaf, cost = rows["leaf"][order], rows["cost"][order]
    level_of = current_share_levels(snapshot, policy)
    of_projects = _ahead(tree.project_of[leaf], cost, len(tree.projects))
    one_each = len(tree.leaves) == len(tree.projects)  # every project has one user: the same again
    extra = (
        _ahead(tree.department_of[leaf], cost, len(tree.departments)),
        of_projects,
        of_projects if one_each else _ahead(leaf, cost, len(tree.leaves)),
    )
    found = np.empty(len(rows))
    found[order] = np.minimum(compute_share_ratios(level_of, extra, leaf), MAX_SHARE_RATIO)
    return found


def current_share_levels(
    snapshot: Snapshot, policy: SchedulingPolicy
) -> tuple[ShareLevel, ShareLevel, ShareLevel]:
    """Departments, projects, users: what each has used, and what of it would be its own."""
    return compute_share_levels(
        snapshot.share_tree, snapshot.usage_by_leaf, _FLOOR_HOURS * cluster_hourly_charge(snapshot, policy)
    )


def project_share_ratios(snapshot: Snapshot, policy: SchedulingPolicy) -> dict[str, float]:
    """How many times its share each project has had lately, as the share tree tells it."""
    if not snapshot.share_tree.leaves:
        return {}
    level = current_share_levels(snapshot, policy)[1]
    return dict(zip(snapshot.share_tree.projects, level.usage_ratio.tolist(), strict=True))


def cluster_hourly_charge(snapshot: Snapshot, policy: SchedulingPolicy) -> float:
    """What an hour of the whole cluster is charged."""
    return snapshot.node_table.hourly_charge(policy.charges)


def _yielding(order: Array, rows: Array, policy: SchedulingPolicy) -> Array:
    """The same, but the preemptible after all of a higher rank; rank 0 also where nobody is sent away."""
    yields = rows["preemptible"] if policy.preempts else rows["rank"] == 0
    if not yields.any() or (policy.order is not QueueOrdering.FAIR_SHARE and not policy.preempts):
        return order
    rank, yields = rows["rank"][order], yields[order]
    place = np.arange(len(order), dtype=np.float64)
    for lower in sorted(set(rank[yields].tolist()), reverse=True):
        higher = place[rank > lower]
        if len(higher):
            mine = yields & (rank == lower)
            place[mine] = np.maximum(place[mine], higher.max() + 0.5)
    return np.asarray(order[np.argsort(place, kind="stable")])


def _within_projects(found: Array, snapshot: Snapshot) -> Array:
    """Points that put the jobs of a project into the order its managers want. Nobody gains any: those who are to
    come later have no more than those before them, so that no other project waits longer for it."""
    rows = snapshot.pending
    if not rows["inner"].any():
        return found
    group = snapshot.share_tree.project_of[rows["leaf"]] * _RANKS + rows["rank"]
    ranked, wished = found.copy(), found + rows["inner"]
    for number in np.unique(group[rows["inner"] > 0]).tolist():
        mine = np.flatnonzero(group == number)
        mine = mine[np.argsort(-wished[mine])]
        ranked[mine] = np.minimum.accumulate(found[mine]) - np.arange(len(mine)) * _TIE
    return ranked


def _ahead(account: Array, cost: Array, accounts: int) -> Array:
    """What stands before each in the queue of its own account."""
    if accounts == 1:
        return np.cumsum(cost) - cost
    together = np.argsort(account.astype(np.uint16) if accounts < 2**16 else account, kind="stable")
    costs = cost[together]
    sums = np.cumsum(costs) - costs
    sizes = np.bincount(account, minlength=accounts)
    firsts = np.minimum(np.cumsum(sizes) - sizes, len(cost) - 1)
    found = np.empty(len(cost))
    found[together] = sums - sums[firsts][account[together]]
    return found
