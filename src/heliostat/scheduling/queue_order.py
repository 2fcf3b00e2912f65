"""The order of the queue.

Shares are entitlements: the department that has used least of its share has the next turn, in it the project that
has used least of its share, and of this project the job with the most points. Each job is charged in advance for
the jobs of its department and project that are ahead of it, so turns alternate: 300 jobs of one project do not
delay the 10 jobs of another.

Points order the jobs of a project. Doubling the wait adds one point and doubling the size subtracts one: a job of
10 GPU-hours has the same priority after ten hours as a job of 1 GPU-hour after one. Usage of its user above the
equal share in the project subtracts points; the first job of a user who has used nothing gets some, because shares
count little on a cluster that is hardly used. Time in the state held does not count as waiting. The points of a
priority class and of an admin's priority count in a project and, against the use of shares, between projects.

No job waits for ever. A job is overdue after a wait of 30 days. The oldest overdue job of a project is its
first one whenever less than an eighth of what the project uses is used by older jobs; between projects and for
bookings it then counts as a job of the highest class that has no budget.

Once the planner has booked the start of a job, no job of its class or below passes it.
"""

import math

import numpy as np

from heliostat.models import Job
from heliostat.scheduling.fair_share_tree import ShareLevel, compute_share_levels
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.policy import QueueOrdering, SchedulingPolicy
from heliostat.scheduling.snapshot import Snapshot

HOUR_SECONDS = 3600.0
_POINTS_PER_PRIORITY = 3.0
_FIRST_HOUR = 1.0  # hours of waiting that a new job starts with
_SMALLEST = 0.1  # GPU-hours: smaller jobs count as this size
_MAX_SHARE_RATIO = 8.0  # higher ratios count as this one
_FLOOR_HOURS = 24.0
_FIRST_JOB_SHARES = 2.0  # usage of this many shares less
# Smaller differences of points or usage do not count: they come from the order in which usage was added up.
# Irrational, so that sums of fractions are not halfway between two multiples.
_RESOLUTION = math.pi * 1e-9
_MORE = 1e-6  # points: enough to be ahead


def class_points(job: Job, policy: SchedulingPolicy) -> float:
    """Points of its class and of a priority set by an admin or below 0; they also count between projects."""
    priority = job.priority if job.priority_everywhere else min(job.priority, 0)
    return float(policy.find_priority_class(job.priority_class).points + priority * _POINTS_PER_PRIORITY)


def manager_points(job: Job) -> float:
    """Points of a priority set by a manager of the project; they count only within it."""
    priority = 0 if job.priority_everywhere else max(job.priority, 0)
    return priority * _POINTS_PER_PRIORITY


def sort_pending(snapshot: Snapshot, policy: SchedulingPolicy, now: float) -> Array:
    """Rows of the pending jobs, highest priority first. Preemptible jobs come after the jobs that may preempt
    them: they would be preempted soon, and a preempted job would take its place back."""
    rows = snapshot.pending
    if policy.order is QueueOrdering.FAIR_SHARE:
        return _promised_order(snapshot, policy, now)
    if policy.order is QueueOrdering.SHORTEST_JOB_FIRST:
        result = np.lexsort((rows["job"], rows["limit"]))
    elif policy.order is QueueOrdering.LEAST_ATTAINED_SERVICE:
        result = np.lexsort((rows["job"], _rounded(snapshot.usage_by_leaf)[rows["leaf"]]))
    else:
        result = np.argsort(rows["job"])
    return _move_preemptible_back(result, rows, policy)


def priority_points(snapshot: Snapshot, policy: SchedulingPolicy, now: float) -> Array:
    """By row; the job of a project with the most points is first."""
    rows = snapshot.pending
    waited = np.maximum(now - rows["waiting"], 0.0) / HOUR_SECONDS + _FIRST_HOUR
    size = np.log2(rows["rate"] * rows["expected"] + _SMALLEST)
    points: Array = rows["class_points"] + rows["manager_points"] + np.log2(waited) - policy.size_weight * size
    if not len(rows):
        return points
    users = current_share_levels(snapshot, policy)[2]
    order = _sort_by(points, np.argsort(rows["job"]), rows, policy)
    shares = np.minimum(_share_ratios(users, rows, order), _MAX_SHARE_RATIO) - _first_job_shares(snapshot, order)
    return np.asarray(points - policy.share_weight * shares)


def _overdue_heads(snapshot: Snapshot, policy: SchedulingPolicy, now: float) -> Array:
    """Rows of the overdue jobs that are first in their projects."""
    rows, running, tree = snapshot.pending, snapshot.running, snapshot.share_tree
    overdue = np.flatnonzero((rows["waiting"] < now - policy.overdue_seconds) & (rows["rank"] > 0))
    if not len(overdue):
        return overdue
    oldest_first = overdue[np.lexsort((rows["job"][overdue], rows["waiting"][overdue]))]
    projects, firsts = np.unique(tree.project_of[rows["leaf"][oldest_first]], return_index=True)
    heads = oldest_first[firsts]
    project_of_running, count = tree.project_of[running["leaf"]], len(tree.projects)
    waiting_since = np.full(count, -np.inf)
    waiting_since[projects] = rows["waiting"][heads]
    is_older = running["waiting"] <= waiting_since[project_of_running]
    used = np.bincount(project_of_running, running["rate"], count)
    used_by_older = np.bincount(project_of_running, running["rate"] * is_older, count)
    has_turn = (used_by_older == 0) | (used_by_older < policy.overdue_fraction * used)
    return np.asarray(heads[has_turn[projects]])


def _first_job_shares(snapshot: Snapshot, order: Array) -> Array:
    """By row: the advantage of the first job, in this order, of each user who has used and runs nothing."""
    tree, running = snapshot.share_tree, snapshot.running["leaf"]
    used = np.bincount(tree.user_of, snapshot.usage_by_leaf)
    is_new = (used < _SMALLEST) & (np.bincount(tree.user_of[running], minlength=len(used)) == 0)
    users, firsts = np.unique(tree.user_of[snapshot.pending["leaf"][order]], return_index=True)
    result = np.zeros(len(order))
    result[order[firsts[is_new[users]]]] = _FIRST_JOB_SHARES
    return result


def _promised_order(snapshot: Snapshot, policy: SchedulingPolicy, now: float) -> Array:
    """The order by fair share, with overdue and booked jobs moved forward."""
    rows = snapshot.pending
    points, class_points = priority_points(snapshot, policy, now), rows["class_points"]
    overdue = _overdue_heads(snapshot, policy, now)
    if not len(overdue):
        return _move_booked_forward(_fair_share_order(snapshot, policy, points, class_points), rows, rows["rank"])
    highest, ranks = policy.highest_unlimited_class, rows["rank"].copy()
    most = points[rows["rank"] <= highest.rank].max(initial=-np.inf)
    points[overdue] = np.maximum(points[overdue], most + _MORE)
    class_points = class_points.copy()
    class_points[overdue] = np.maximum(class_points[overdue], highest.points)
    ranks[overdue] = np.maximum(ranks[overdue], highest.rank)
    return _move_booked_forward(_fair_share_order(snapshot, policy, points, class_points), rows, ranks)


def _fair_share_order(snapshot: Snapshot, policy: SchedulingPolicy, points: Array, class_points: Array) -> Array:
    """The jobs of a project by points, then the projects of each department and the departments in turns."""
    rows = snapshot.pending
    order = _sort_by(points, np.argsort(rows["job"]), rows, policy)
    if not len(rows):
        return order
    departments, projects, _ = current_share_levels(snapshot, policy)
    for level in (projects, departments):
        if len(level.usage) > 1:
            turn = class_points - policy.share_weight * _share_ratios(level, rows, order)
            order = _sort_by(turn, order, rows, policy)
    return order


def _sort_by(points: Array, order: Array, rows: Array, policy: SchedulingPolicy) -> Array:
    """Most points first; jobs with equal points stay in this order."""
    return _move_preemptible_back(order[np.argsort(-_rounded(points)[order], kind="stable")], rows, policy)


def _rounded(values: Array) -> Array:
    return np.asarray(np.rint(values / _RESOLUTION))


def _share_ratios(level: ShareLevel, rows: Array, order: Array) -> Array:
    """By row: usage of its account on this level as a multiple of its share, with the jobs ahead in this order."""
    account = level.account_of_leaf[rows["leaf"][order]]
    ahead = _charges_ahead(account, rows["advance"][order], len(level.usage))
    result = np.empty(len(rows))
    result[order] = (level.usage[account] + ahead) / level.entitled_usage[account]
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


def _move_booked_forward(order: Array, rows: Array, ranks: Array) -> Array:
    """The order with booked jobs, oldest booking first, ahead of all others that are not of a higher rank. None
    moves back."""
    booked_at = rows["booked"][order]
    is_booked = np.isfinite(booked_at)
    if not is_booked.any():
        return order
    others = order[~is_booked]
    by_age = np.argsort(booked_at[is_booked], kind="stable")
    heads = order[is_booked][by_age]
    others_ahead = np.cumsum(~is_booked)[is_booked][by_age]
    positions: list[int] = []
    for rank, own_position in zip(ranks[heads].tolist(), others_ahead.tolist(), strict=True):
        not_higher = np.flatnonzero(rows["rank"][others] <= rank)
        position = min(int(not_higher[0]), own_position) if len(not_higher) else own_position
        positions.append(max(position, positions[-1] if positions else 0))
    return np.insert(others, positions, heads)


def _charges_ahead(account: Array, charges: Array, accounts: int) -> Array:
    """Advance charges of the jobs ahead of each job within its own account."""
    if accounts == 1:
        return np.cumsum(charges) - charges
    by_account = np.argsort(account.astype(np.uint16) if accounts < 2**16 else account, kind="stable")
    sorted_charges = charges[by_account]
    sums = np.cumsum(sorted_charges) - sorted_charges
    sizes = np.bincount(account, minlength=accounts)
    firsts = np.minimum(np.cumsum(sizes) - sizes, len(charges) - 1)
    result = np.empty(len(charges))
    result[by_account] = sums - sums[firsts][account[by_account]]
    return result
