"""Which of many jobs could start now beside all bookings: `Capacity.find_placement` for all in one pass."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from heliostat.scheduling.job_shape import JobShape, stack_task_requests
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.planned_capacity import BookedCapacity, Capacity
from heliostat.scheduling.snapshot import Snapshot

_BATCH_PAIRS = 500_000  # pairs of shape and node that are counted in one step


def find_startable(rows: Array, snapshot: Snapshot, capacity: Capacity, now: float) -> Array:
    """By row of a pending job: whether it has a placement. If not, it has none later in this plan either."""
    first, group_of_row = _group_equal_jobs(rows, snapshot, capacity.bookings, now)
    jobs, table = snapshot.pending[rows[first]], snapshot.node_table
    shapes = [snapshot.shapes[number] for number in jobs["shape"].tolist()]
    projects = np.array(snapshot.share_tree.projects)[snapshot.share_tree.project_of[jobs["leaf"]]]
    alike: defaultdict[tuple[int, bool, bool], list[int]] = defaultdict(list)
    for place, shape in enumerate(shapes):
        group = table.eligibility_of(shape).shape_group
        alike[group, shape.is_fractional, shape.placement.exclusive].append(place)
    result = np.zeros(len(shapes), bool)
    step = max(1, _BATCH_PAIRS // max(len(table.nodes), 1))
    for places in alike.values():
        for begin in range(0, len(places), step):
            batch = places[begin : begin + step]
            chosen = [shapes[place] for place in batch]
            result[batch] = _fit_in_batch(chosen, projects[batch], now + jobs["limit"][batch], capacity)
    return np.asarray(result[group_of_row])


def _group_equal_jobs(
    rows: Array, snapshot: Snapshot, bookings: Sequence[BookedCapacity], now: float
) -> tuple[Array, Array]:
    """Jobs are equal if they have the same shape and the same bookings apply to them. The place of the first job
    of each group, and the group of each row."""
    pending, tree = snapshot.pending, snapshot.share_tree
    starts = np.sort([booking.start for booking in bookings])
    bookings_before_end = np.searchsorted(starts, now + pending["limit"][rows])
    exempt = {booking.exempt_project for booking in bookings}
    is_exempt = np.array([project in exempt for project in tree.projects], bool)
    project = tree.project_of[pending["leaf"][rows]]
    keys = np.ravel_multi_index(
        (pending["shape"][rows], bookings_before_end, np.where(is_exempt[project], project + 1, 0)),
        (len(snapshot.shapes), len(bookings) + 1, len(tree.projects) + 1),
    )
    _, first, group_of_row = np.unique(keys, return_index=True, return_inverse=True)
    return first, group_of_row


def _fit_in_batch(shapes: Sequence[JobShape], projects: Array, ends: Array, capacity: Capacity) -> Array:
    """By job: whether all its tasks fit. The shapes have the same eligible nodes and kinds of device."""
    eligibility, request = capacity.node_table.eligibility_of(shapes[0]), stack_task_requests(shapes)
    tasks = np.array([shape.placement.tasks for shape in shapes])
    is_spread = np.array([shape.placement.layout == "spread" for shape in shapes])
    most_per_node = np.where(is_spread, 1, tasks)[:, None]
    result = np.zeros(len(shapes), bool)
    for kind in eligibility.device_kinds:
        counts = np.where(eligibility.eligible_up_nodes, capacity.count_tasks(request, kind), 0)
        fits = ~result & _have_enough(counts, tasks, most_per_node)
        for booking in capacity.bookings:
            rows = np.flatnonzero(fits & (booking.start < ends) & (projects != booking.exempt_project))
            cells = np.ix_(rows, booking.nodes)
            counts[cells] = np.minimum(counts[cells], booking.count_tasks(request.select_rows(rows), kind))
            fits[rows] = _have_enough(counts[rows], tasks[rows], most_per_node[rows])
        result |= fits
    return result


def _have_enough(counts: Array, tasks: Array, most_per_node: Array) -> Array:
    """By job: whether the nodes have enough for all its tasks."""
    return np.asarray(np.minimum(counts, most_per_node).sum(axis=1) >= tasks)
