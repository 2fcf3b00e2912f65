"""The order of the queue, by priority points.

Under the fair-share policy, doubling the wait adds one point and doubling the size subtracts one: a job of 10
GPU-hours has the same priority after ten hours as a job of 1 GPU-hour after one. Usage above the share subtracts
points, a high priority class adds some. The wait is unbounded and all other terms are bounded, so no job starves.
Time in the state held does not count as waiting.

A booked job is the exception: once the planner has promised its start, no job of its class or below passes it.

Each job is charged in advance for the jobs of the same account ahead of it: 300 jobs of one user do not delay the
10 jobs of another. The first job of a user who has used nothing gets extra points: shares count little on a
cluster that is hardly used, and there the jobs of others would stay ahead because they have waited longer.
"""

import numpy as np

from heliostat.models import Job
from heliostat.scheduling.fair_share_tree import ShareLevel, compute_share_levels, compute_share_ratios
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.policy import QueueOrdering, SchedulingPolicy
from heliostat.scheduling.snapshot import Snapshot

HOUR_SECONDS = 3600.0
_POINTS_PER_PRIORITY = 3.0
_FIRST_HOUR = 1.0  # hours of waiting that a new job starts with
_SMALLEST = 0.1  # GPU-hours: smaller jobs count as this size
MAX_SHARE_RATIO = 8.0  # higher ratios count as this one
_FLOOR_HOURS = 24.0
_FIRST_JOB_SHARES = 2.0  # usage of this many shares less
_RANKS = 128  # larger than the number of ranks
_TIE = 1e-12  # between equal jobs, the one submitted first is ahead


def static_priority_points(job: Job, policy: SchedulingPolicy, cost: float) -> float:
    """Points that do not change while the job waits: class, priority and size."""
    size = policy.size_weight * np.log2(cost + _SMALLEST)
    priority_class = policy.find_priority_class(job.priority_class)
    priority = job.priority if job.priority_everywhere else min(job.priority, 0)
    return float(priority_class.points + priority * _POINTS_PER_PRIORITY - size - job.id * _TIE)


def project_priority_points(job: Job) -> float:
    """Points for a priority set by a manager of the project; they count only within the project."""
    return 0.0 if job.priority_everywhere else max(job.priority, 0) * _POINTS_PER_PRIORITY


def sort_pending(snapshot: Snapshot, policy: SchedulingPolicy, now: float) -> Array:
    """Rows of the pending jobs, highest priority first. Preemptible jobs come after the jobs that may preempt
    them: they would be preempted soon, and a preempted job would take its place back."""
    rows = snapshot.pending
    if policy.order is QueueOrdering.FAIR_SHARE:
        return _move_booked_forward(
            _move_preemptible_back(np.argsort(-priority_points(snapshot, policy, now)), rows, policy), rows
        )
    if policy.order is QueueOrdering.SHORTEST_JOB_FIRST:
        result = np.lexsort((rows["job"], rows["limit"]))
    elif policy.order is QueueOrdering.LEAST_ATTAINED_SERVICE:
        result = np.lexsort((rows["job"], snapshot.usage_by_leaf[rows["leaf"]]))
    else:
        result = np.argsort(rows["job"])
    return _move_preemptible_back(result, rows, policy)


def priority_points(snapshot: Snapshot, policy: SchedulingPolicy, now: float) -> Array:
    """By row; the job with the most points is first."""
    rows = snapshot.pending
    waited = np.maximum(now - rows["waiting"], 0.0) / HOUR_SECONDS + _FIRST_HOUR
    without_share = rows["points"] + np.log2(waited)
    ranked = _within_projects(without_share, snapshot)
    if not len(rows) or len(snapshot.share_tree.leaves) < 2:
        return ranked
    order = _move_preemptible_back(np.argsort(-ranked), rows, policy)
    shares = share_ratios_by_row(snapshot, policy, order) - _first_job_shares(snapshot, order)
    return _within_projects(without_share - policy.share_weight * shares, snapshot)


def _first_job_shares(snapshot: Snapshot, order: Array) -> Array:
    """By row: the advantage of the first job, in this order, of each user who has used and runs nothing."""
    tree, running = snapshot.share_tree, snapshot.running["leaf"]
    used = np.bincount(tree.user_of, snapshot.usage_by_leaf)
    is_new = (used < _SMALLEST) & (np.bincount(tree.user_of[running], minlength=len(used)) == 0)
    users, firsts = np.unique(tree.user_of[snapshot.pending["leaf"][order]], return_index=True)
    result = np.zeros(len(order))
    result[order[firsts[is_new[users]]]] = _FIRST_JOB_SHARES
    return result


def share_ratios_by_row(snapshot: Snapshot, policy: SchedulingPolicy, order: Array) -> Array:
    """By row: usage of its accounts as a multiple of their share, with the jobs ahead of it in this order."""
    rows, tree = snapshot.pending, snapshot.share_tree
    leaf, cost = rows["leaf"][order], rows["cost"][order]
    levels = current_share_levels(snapshot, policy)
    of_projects = _cost_ahead(tree.project_of[leaf], cost, len(tree.projects))
    single_users = len(tree.leaves) == len(tree.projects)  # every project has one user: same values
    extra = (
        _cost_ahead(tree.department_of[leaf], cost, len(tree.departments)),
        of_projects,
        of_projects if single_users else _cost_ahead(leaf, cost, len(tree.leaves)),
    )
    result = np.empty(len(rows))
    result[order] = np.minimum(compute_share_ratios(levels, extra, leaf), MAX_SHARE_RATIO)
    return result


def current_share_levels(
    snapshot: Snapshot, policy: SchedulingPolicy
) -> tuple[ShareLevel, ShareLevel, ShareLevel]:
    """Departments, projects, users: the usage and entitled usage of each."""
    return compute_share_levels(
        snapshot.share_tree, snapshot.usage_by_leaf, _FLOOR_HOURS * cluster_hourly_charge(snapshot, policy)
    )


def project_share_ratios(snapshot: Snapshot, policy: SchedulingPolicy) -> dict[str, float]:
    """Recent usage of each project, as a multiple of its share."""
    if not snapshot.share_tree.leaves:
        return {}
    level = current_share_levels(snapshot, policy)[1]
    return dict(zip(snapshot.share_tree.projects, level.usage_ratio.tolist(), strict=True))


def cluster_hourly_charge(snapshot: Snapshot, policy: SchedulingPolicy) -> float:
    """Charge for one hour of the whole cluster."""
    return snapshot.node_table.hourly_charge(policy.charges)


def _move_preemptible_back(order: Array, rows: Array, policy: SchedulingPolicy) -> Array:
    """The order with preemptible jobs moved behind all jobs of a higher rank; rank 0 also without preemption."""
    moves_back = rows["preemptible"] if policy.preempts else rows["rank"] == 0
    if not moves_back.any() or (policy.order is not QueueOrdering.FAIR_SHARE and not policy.preempts):
        return order
    rank, moves_back = rows["rank"][order], moves_back[order]
    positions = np.arange(len(order), dtype=np.float64)
    for lower in sorted(set(rank[moves_back].tolist()), reverse=True):
        higher = positions[rank > lower]
        if len(higher):
            selected = moves_back & (rank == lower)
            positions[selected] = np.maximum(positions[selected], higher.max() + 0.5)
    return np.asarray(order[np.argsort(positions, kind="stable")])


def _move_booked_forward(order: Array, rows: Array) -> Array:
    """The order with booked jobs, oldest booking first, ahead of all others that are not of a higher class."""
    booked_at = rows["booked"][order]
    is_booked = np.isfinite(booked_at)
    if not is_booked.any():
        return order
    others = order[~is_booked]
    heads = order[is_booked][np.argsort(booked_at[is_booked], kind="stable")]
    positions: list[int] = []
    for rank in rows["rank"][heads].tolist():
        not_higher = np.flatnonzero(rows["rank"][others] <= rank)
        position = int(not_higher[0]) if len(not_higher) else len(others)
        positions.append(max(position, positions[-1] if positions else 0))
    return np.insert(others, positions, heads)


def _within_projects(result: Array, snapshot: Snapshot) -> Array:
    """Points that order the jobs of a project by the priorities of its managers. No job gains points: later jobs
    are capped at the points of earlier ones, so that no other project waits longer."""
    rows = snapshot.pending
    if not rows["inner"].any():
        return result
    group = snapshot.share_tree.project_of[rows["leaf"]] * _RANKS + rows["rank"]
    ranked, adjusted = result.copy(), result + rows["inner"]
    for number in np.unique(group[rows["inner"] > 0]).tolist():
        rows_of_group = np.flatnonzero(group == number)
        rows_of_group = rows_of_group[np.argsort(-adjusted[rows_of_group])]
        ranked[rows_of_group] = np.minimum.accumulate(result[rows_of_group]) - np.arange(len(rows_of_group)) * _TIE
    return ranked


def _cost_ahead(account: Array, cost: Array, accounts: int) -> Array:
    """Cost of the jobs ahead of each job within its own account."""
    if accounts == 1:
        return np.cumsum(cost) - cost
    by_account = np.argsort(account.astype(np.uint16) if accounts < 2**16 else account, kind="stable")
    costs = cost[by_account]
    sums = np.cumsum(costs) - costs
    sizes = np.bincount(account, minlength=accounts)
    firsts = np.minimum(np.cumsum(sizes) - sizes, len(cost) - 1)
    result = np.empty(len(cost))
    result[by_account] = sums - sums[firsts][account[by_account]]
    return result
