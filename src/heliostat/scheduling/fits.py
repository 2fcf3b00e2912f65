"""Where the tasks of a job would go, and what they would hold there."""

from dataclasses import dataclass

import numpy as np

from heliostat.scheduling.columns import Array
from heliostat.scheduling.fitting import parts_per_device
from heliostat.scheduling.free import spread_over
from heliostat.scheduling.machines import Machines
from heliostat.scheduling.shapes import Shape
from heliostat.scheduling.snapshot import RUNNING, Start

_NOWHERE = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Fit:
    """Where the tasks of a job would go: so many on each node, all with devices of one kind."""

    nodes: Array
    tasks: Array  # parallel to nodes
    kind: int


def fit_into(capacity: Array, shape: Shape, kind: int, leftover: Array) -> Fit | None:
    """Its tasks on nodes that could take so many; `leftover` says where it hurts least."""
    if shape.placement.tasks == 1:
        node = int(np.where(capacity > 0, leftover, _NOWHERE).argmin())
        return Fit(np.array([node]), np.ones(1, np.int64), kind) if capacity[node] > 0 else None
    tasks = spread_over(capacity, shape, leftover)
    if tasks is None:
        return None
    nodes = np.flatnonzero(tasks)
    return Fit(nodes, tasks[nodes], kind)


def needs_of(shape: Shape, fit: Fit, machines: Machines) -> Array:
    """What such a job would hold, as rows of RUNNING; one per node."""
    rows = np.zeros(len(fit.nodes), RUNNING)
    wanted = shape.resources
    rows["node"], rows["kind"] = fit.nodes, fit.kind
    rows["devices"] = fit.tasks * wanted.devices
    if shape.is_part:
        rows["devices"] = -(-fit.tasks // parts_per_device(wanted.gpus))
    rows["cpus"], rows["memory"] = fit.tasks * wanted.cpus, fit.tasks * wanted.memory_mib
    if shape.placement.exclusive:
        rows["cpus"], rows["memory"] = machines.cpus[fit.nodes], machines.memory[fit.nodes]
    return rows


def fit_of(start: Start, machines: Machines) -> Fit:
    """Where a job was put, as a plan sees it."""
    names = [place.node for place in start.places]
    nodes = list(dict.fromkeys(names))
    kind = machines.kind_of[start.devices[0]] if start.devices else -1
    return Fit(np.array([machines.index[name] for name in nodes]), np.array([names.count(n) for n in nodes]), kind)
