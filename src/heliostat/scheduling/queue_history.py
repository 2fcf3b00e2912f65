"""What each user of each project has asked for and received, hour by hour, in charged GPU-hours.

A job asks for its resources while it waits in the queue and while it runs. A wait does not count while the job is
held, while it waits for another job, its begin time or a reservation, while its array or a quota of running GPUs
is at its limit, and in a class that takes what others leave.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from datetime import datetime

import numpy as np

from heliostat.models import JobSpan
from heliostat.models.gpu_types import card_fraction
from heliostat.scheduling.fair_share_tree import FairShareTree, Leaf, build_fair_share_tree
from heliostat.scheduling.job_shape import IndexedSet
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.policy import ChargeRates, SchedulingPolicy
from heliostat.scheduling.queue_order import HOUR_SECONDS
from heliostat.scheduling.quotas import find_quota, quota_keys
from heliostat.scheduling.share_accounts import ShareAccounts

_SPAN_DTYPE = np.dtype(
    [
        ("job_id", np.int64),
        ("project", object),
        ("user", object),
        ("priority_class", object),
        ("gpus", np.float64),
        ("cpus", np.float64),
        ("memory_mib", np.float64),
        ("gpu_type", object),
        ("array_id", np.float64),  # nan: none
        ("array_limit", np.float64),  # nan: none
        ("waits_for_reservation", np.bool_),
        ("submitted_at", np.float64),
        ("waited_seconds", np.float64),
        ("started_at", np.float64),  # nan: not started
        ("ended_at", np.float64),  # nan: not ended
    ]
)
_DECIMALS = 9  # smaller amounts are rounding errors


@dataclass(frozen=True, slots=True)
class QueueHistory:
    """Charged GPU-hours by leaf of the share tree and hour."""

    tree: FairShareTree
    delivered: Array
    demand: Array  # what its jobs could have used in this hour; at least what was delivered
    work: Array  # of the jobs that entered the queue in this hour: what they used in all, or ask for until now


@dataclass(frozen=True, slots=True)
class _Intervals:
    """Times are in hours since the start of the history."""

    leaf: Array
    start: Array
    end: Array
    rate: Array  # charge per hour
    gpus: Array  # a MIG slice counts as its part of one


def build_queue_history(
    spans: Iterable[JobSpan], start: datetime, end: datetime, accounts: ShareAccounts, policy: SchedulingPolicy
) -> QueueHistory:
    """From `start` to `end`. `spans`: at least those of this time, in any order."""
    rows = np.fromiter(spans, _SPAN_DTYPE)
    leaves: IndexedSet[Leaf] = IndexedSet()
    leaf = np.array([*map(leaves.index_of, zip(rows["project"], rows["user"], strict=True))], np.int64)
    tree = build_fair_share_tree(tuple(leaves.items), accounts)
    shape = len(tree.leaves), max(1, math.ceil((end - start).total_seconds() / HOUR_SECONDS))
    asked, started, ended = _times(rows, start.timestamp(), end.timestamp(), policy)
    runs = _Intervals(leaf, started, ended, _charge_rates(rows, policy.charges), _cards(rows))
    delivered = _spread_over_hours(shape, runs, runs.rate)
    demand = _demand(shape, _within_array_limits(rows, replace(runs, start=asked)), tree, accounts)
    is_run_time_known = ~np.isnan(rows["started_at"] + rows["ended_at"])
    work = replace(runs, start=asked, rate=runs.rate * (ended - np.where(is_run_time_known, started, asked)))
    return QueueHistory(tree, delivered, np.maximum(demand, delivered), _sum_at_start(shape, work))


def _times(rows: Array, began: float, now: float, policy: SchedulingPolicy) -> tuple[Array, Array, Array]:
    """When the waits began to count, the runs began, and the runs ended: in hours since the start."""
    ended = np.where(np.isnan(rows["ended_at"]), now, rows["ended_at"])
    started = np.where(np.isnan(rows["started_at"]), ended, rows["started_at"])
    waited = np.where(_takes_turns(rows, policy), _wait_seconds(rows, started, ended), 0.0)
    times = (started - waited, started, np.maximum(started, ended))
    asked, started, ended = ((np.clip(at, began, now) - began) / HOUR_SECONDS for at in times)
    return asked, started, ended


def _takes_turns(rows: Array, policy: SchedulingPolicy) -> Array:
    """Whether its wait counts."""
    ranks = {name: policy.find_priority_class(name).rank for name in set(rows["priority_class"])}
    takes_leftovers = np.array([ranks[name] == 0 for name in rows["priority_class"]], bool)
    return np.asarray(~takes_leftovers & ~rows["waits_for_reservation"])


def _wait_seconds(rows: Array, started: Array, ended: Array) -> Array:
    """The wait before each run. Only the total of a job is known. It is assigned to the time before its last runs
    first, because what does not count, as the wait for other jobs, is mostly at the beginning."""
    order = np.lexsort((started, rows["job_id"]))
    job, started, ended = rows["job_id"][order], started[order], ended[order]
    is_first, is_last = np.ones(len(job), bool), np.ones(len(job), bool)
    is_first[1:] = is_last[:-1] = job[1:] != job[:-1]
    free_since = rows["submitted_at"][order]
    free_since[1:] = np.where(is_first[1:], free_since[1:], ended[:-1])
    gaps = np.maximum(started - free_since, 0.0)
    total = np.cumsum(gaps)
    later_gaps = total[is_last][np.cumsum(is_first) - 1] - total
    result = np.empty(len(job))
    result[order] = np.clip(rows["waited_seconds"][order] - later_gaps, 0.0, gaps)
    return result


def _cards(rows: Array) -> Array:
    return np.asarray(rows["gpus"] * np.array([card_fraction(kind) for kind in rows["gpu_type"]], float))


def _charge_rates(rows: Array, charges: ChargeRates) -> Array:
    """Per hour."""
    of_type = {kind: charges.gpu_charge(kind) for kind in set(rows["gpu_type"])}
    per_gpu = np.array([of_type[kind] for kind in rows["gpu_type"]], float)
    memory_gib = rows["memory_mib"] / 1024
    return np.asarray(rows["gpus"] * per_gpu + rows["cpus"] * charges.cpu + memory_gib * charges.memory_gib)


def _demand(shape: tuple[int, int], asked: _Intervals, tree: FairShareTree, accounts: ShareAccounts) -> Array:
    """Of an account above its quota of running GPUs, only the part that the quota allows."""
    demand = _spread_over_hours(shape, asked, asked.rate)
    quotas = list(_running_gpu_quotas(tree, accounts))
    gpus = _spread_over_hours(shape, asked, asked.gpus) if quotas else demand
    for leaves, limit in quotas:
        allowed = limit / np.maximum(gpus[leaves].sum(axis=0), max(limit, 1e-9))
        demand[leaves] *= allowed
        gpus[leaves] *= allowed
    return demand


def _running_gpu_quotas(tree: FairShareTree, accounts: ShareAccounts) -> Iterator[tuple[list[int], int]]:
    """The leaves of each user, project and department with such a quota, and the quota."""
    leaves_of: dict[tuple[str, str], list[int]] = {}
    for number, (project, user) in enumerate(tree.leaves):
        for scope in quota_keys(user, project, accounts):
            leaves_of.setdefault(scope, []).append(number)
    for scope, leaves in leaves_of.items():
        limit = find_quota(scope, accounts).running_gpus
        if limit is not None:
            yield leaves, limit


def _within_array_limits(rows: Array, asked: _Intervals) -> _Intervals:
    """Of an array with a limit, only as many elements as may run at once: one interval from each change of their
    number to the next."""
    limited = ~np.isnan(rows["array_limit"])
    if not limited.any():
        return asked
    others, elements = _select(asked, ~limited), _select(asked, limited)
    array, limit = rows["array_id"][limited], rows["array_limit"][limited]
    at, change = np.concatenate([elements.start, elements.end]), np.repeat((1.0, -1.0), len(array))
    order = np.lexsort((at, np.tile(array, 2)))
    at, change, element = at[order], change[order], order % len(array)
    allowed = np.minimum(1.0, limit[element] / np.maximum(np.cumsum(change), 1.0))
    until = np.maximum(np.append(at[1:], at[-1]), at)  # after the end of an array, nothing is asked for
    return _Intervals(
        np.append(others.leaf, elements.leaf[element]),
        np.append(others.start, at),
        np.append(others.end, until),
        np.append(others.rate, np.cumsum(change * elements.rate[element]) * allowed),
        np.append(others.gpus, np.cumsum(change * elements.gpus[element]) * allowed),
    )


def _select(intervals: _Intervals, rows: Array) -> _Intervals:
    return _Intervals(*(getattr(intervals, field.name)[rows] for field in fields(intervals)))


def _sum_at_start(shape: tuple[int, int], intervals: _Intervals) -> Array:
    """The sum of the rates by leaf and hour of the start."""
    leaves, hours = shape
    place = intervals.leaf * hours + np.minimum(intervals.start.astype(np.int64), hours - 1)
    return np.bincount(place, intervals.rate, leaves * hours).reshape(shape)


def _spread_over_hours(shape: tuple[int, int], intervals: _Intervals, rate: Array) -> Array:
    """The amount by leaf and hour, of intervals with this rate per hour."""
    leaves, hours = shape
    in_hour, rate_after = np.zeros(leaves * hours), np.zeros(leaves * hours)
    for at, change in ((intervals.start, rate), (intervals.end, -rate)):
        hour = np.minimum(at.astype(np.int64), hours - 1)
        place = intervals.leaf * hours + hour
        in_hour += np.bincount(place, change * (hour + 1 - at), len(in_hour))
        rate_after += np.bincount(place, change, len(in_hour))
    amounts = in_hour.reshape(shape)
    amounts[:, 1:] += np.cumsum(rate_after.reshape(shape), axis=1)[:, :-1]
    return np.maximum(np.round(amounts, _DECIMALS), 0.0)
