"""Where the tasks of a job would go, and what they would hold there."""

from dataclasses import dataclass

import numpy as np

from heliostat.scheduling.feasibility import fractions_per_device
from heliostat.scheduling.free_resources import distribute_tasks
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.node_table import NodeTable
from heliostat.scheduling.snapshot import RUNNING_DTYPE, PlannedStart

_NOWHERE = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class JobPlacement:
    """Where the tasks of a job would go: so many on each node, all with devices of one kind."""

    nodes: Array
    tasks_per_node: Array  # parallel to nodes
    device_kind: int


def place_tasks(capacity: Array, shape: JobShape, kind: int, leftover: Array) -> JobPlacement | None:
    """Its tasks on nodes that could take so many; `leftover` says where it hurts least."""
    if shape.placement.tasks == 1:
        node = int(np.where(capacity > 0, leftover, _NOWHERE).argmin())
        return JobPlacement(np.array([node]), np.ones(1, np.int64), kind) if capacity[node] > 0 else None
    tasks = distribute_tasks(capacity, shape, leftover)
    if tasks is None:
        return None
    nodes = np.flatnonzero(tasks)
    return JobPlacement(nodes, tasks[nodes], kind)


def resource_rows(shape: JobShape, fit: JobPlacement, machines: NodeTable) -> Array:
    """What such a job would hold, as rows of RUNNING; one per node."""
    rows = np.zeros(len(fit.nodes), RUNNING_DTYPE)
    wanted = shape.resources
    rows["node"], rows["kind"] = fit.nodes, fit.device_kind
    rows["devices"] = fit.tasks_per_node * wanted.device_count
    if shape.is_fractional:
        rows["devices"] = -(-fit.tasks_per_node // fractions_per_device(wanted.gpus))
    rows["cpus"], rows["memory"] = fit.tasks_per_node * wanted.cpus, fit.tasks_per_node * wanted.memory_mib
    if shape.placement.exclusive:
        rows["cpus"], rows["memory"] = machines.cpus[fit.nodes], machines.memory_mib[fit.nodes]
    return rows


def placement_from_start(start: PlannedStart, machines: NodeTable) -> JobPlacement:
    """Where a job was put, as a plan sees it."""
    names = [place.node for place in start.places]
    nodes = list(dict.fromkeys(names))
    kind = machines.kind_of_device[start.devices[0]] if start.devices else -1
    return JobPlacement(
        np.array([machines.index_by_name[name] for name in nodes]), np.array([names.count(n) for n in nodes]), kind
    )
