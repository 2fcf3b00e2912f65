"""What each account was entitled to, hour by hour.

The GPU-hours that the cluster delivered in an hour are divided by the rule of the queue, as if GPUs could be
divided at will: to the departments that have received least of their share, to none more than it asks for; then in
the same way to the projects of each department and to the users of each project. What was received earlier counts
with the half-life of the queue.
"""

from dataclasses import dataclass

import numpy as np

from heliostat.scheduling.fair_share_tree import FairShareTree
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.queue_history import QueueHistory


def compute_entitlement(history: QueueHistory, half_life_hours: float) -> Array:
    """Charged GPU-hours by leaf and hour. In each hour their sum is what was delivered."""
    entitled = np.zeros_like(history.delivered)
    levels, decay = _levels(history.tree), 0.5 ** (1 / half_life_hours)
    received = [np.zeros(len(level.shares)) for level in levels]
    unfinished = np.zeros(len(entitled))  # work of each leaf
    for hour, total in enumerate(history.delivered.sum(axis=0).tolist()):
        unfinished += history.work[:, hour]
        received = [amounts * decay for amounts in received]
        if total:
            demand = _unfinished_demand(history.demand[:, hour], unfinished, total)
            given = np.array([total])
            for at, level in enumerate(levels):
                given = _divide(given, level, received[at], np.bincount(level.account_of_leaf, demand))
                received[at] += given
            entitled[:, hour] = given
            unfinished = np.maximum(unfinished - given, 0.0)
    return entitled


@dataclass(frozen=True, slots=True)
class _Level:
    """Departments, projects or users."""

    parent_of: Array  # by account: on the level above
    shares: Array  # by account: of its parent
    account_of_leaf: Array


def _levels(tree: FairShareTree) -> tuple[_Level, _Level, _Level]:
    cluster = np.zeros(len(tree.departments), np.int32)
    leaves = np.arange(len(tree.leaves), dtype=np.int32)
    return (
        _Level(cluster, tree.department_shares, tree.department_of),
        _Level(tree.department_of_project, tree.project_shares, tree.project_of),
        _Level(tree.project_of, tree.leaf_shares, leaves),
    )


def _unfinished_demand(demand: Array, unfinished: Array, total: float) -> Array:
    """The demand without work that is done already if each account receives what it is entitled to. Where others
    received it instead, the rest of the demand is needed to divide everything that was delivered."""
    still = np.minimum(demand, unfinished)
    missing, rest = total - float(still.sum()), demand - still
    return still + rest * (missing / max(float(rest.sum()), missing)) if missing > 0 else still


def _divide(amounts: Array, level: _Level, received: Array, demand: Array) -> Array:
    """Divides the amount of each parent. Its accounts rise to the same multiple of their share, as far as they ask
    for so much.

    The sum that lifts them to a multiple is piecewise linear in it; its slope changes where an account begins or
    ends to rise.
    """
    shares = level.shares
    multiples = np.concatenate([received, received + demand]) / np.tile(shares, 2)
    parents = np.tile(level.parent_of, 2)
    order = np.lexsort((multiples, parents))
    multiples, parents = multiples[order], parents[order]
    slopes = np.maximum(np.cumsum(np.concatenate([shares, -shares])[order]), 0.0)
    rises = np.where(parents[1:] == parents[:-1], slopes[:-1] * np.diff(multiples), 0.0)
    filled = np.concatenate([[0.0], np.cumsum(rises)])
    first = np.searchsorted(parents, np.arange(len(amounts)))
    last = np.searchsorted(parents, np.arange(len(amounts)), side="right") - 1
    target = filled[first] + amounts
    at = np.clip(np.searchsorted(filled, target, side="right") - 1, first, last - 1)
    multiple = multiples[at] + (target - filled[at]) / np.maximum(slopes[at], shares.min())
    return np.asarray(np.clip(multiple[level.parent_of] * shares - received, 0.0, demand))
