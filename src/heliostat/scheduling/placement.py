"""Placement of the tasks of a job on nodes, and the resources they hold there."""

from dataclasses import dataclass

import numpy as np

from heliostat.scheduling.feasibility import fractions_per_device
from heliostat.scheduling.free_resources import distribute_tasks
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.node_table import NodeTable
from heliostat.scheduling.snapshot import RUNNING_DTYPE, PlannedStart

_WORST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class JobPlacement:
    """Tasks per node, all with devices of one kind."""

    nodes: Array
    tasks_per_node: Array  # parallel to nodes
    device_kind: int


def place_tasks(task_counts: Array, shape: JobShape, kind: int, leftover: Array) -> JobPlacement | None:
    """Place all tasks within the task count of each node; nodes with a low `leftover` are preferred."""
    if shape.placement.tasks == 1:
        node = int(np.where(task_counts > 0, leftover, _WORST).argmin())
        return JobPlacement(np.array([node]), np.ones(1, np.int64), kind) if task_counts[node] > 0 else None
    tasks = distribute_tasks(task_counts, shape, leftover)
    if tasks is None:
        return None
    nodes = np.flatnonzero(tasks)
    return JobPlacement(nodes, tasks[nodes], kind)


def resource_rows(shape: JobShape, placement: JobPlacement, node_table: NodeTable) -> Array:
    """The resources of such a job as rows of RUNNING_DTYPE, one per node."""
    rows = np.zeros(len(placement.nodes), RUNNING_DTYPE)
    requested = shape.resources
    rows["node"], rows["kind"] = placement.nodes, placement.device_kind
    rows["devices"] = placement.tasks_per_node * requested.device_count
    if shape.is_fractional:
        rows["devices"] = -(-placement.tasks_per_node // fractions_per_device(requested.gpus))
    rows["cpus"], rows["memory"] = (
        placement.tasks_per_node * requested.cpus,
        placement.tasks_per_node * requested.memory_mib,
    )
    if shape.placement.exclusive:
        rows["cpus"], rows["memory"] = node_table.cpus[placement.nodes], node_table.memory_mib[placement.nodes]
    return rows


def placement_from_start(start: PlannedStart, node_table: NodeTable) -> JobPlacement:
    """The placement of a planned start."""
    names = [place.node for place in start.places]
    nodes = list(dict.fromkeys(names))
    kind = node_table.kind_of_device[start.devices[0]] if start.devices else -1
    return JobPlacement(
        np.array([node_table.index_by_name[name] for name in nodes]),
        np.array([names.count(n) for n in nodes]),
        kind,
    )
