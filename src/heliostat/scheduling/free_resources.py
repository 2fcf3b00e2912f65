"""What is free of some nodes, and how many tasks of a shape that holds."""

from dataclasses import dataclass

import numpy as np

from heliostat.scheduling.feasibility import fractions_per_device
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.keyed_array import Array

_PLENTY = 1 << 30
_MANY = 4  # rows from which on it is quicker to sum up whole columns


@dataclass(slots=True)
class FreeResources:
    """Parallel arrays over some nodes. Changes while a plan hands it out; lives no longer than the plan."""

    cpus: Array
    memory_mib: Array
    gpus: Array  # nodes x kinds: whole devices
    running_count: Array  # how many rows of running jobs are on the node

    def copy(self) -> "FreeResources":
        return FreeResources(self.cpus.copy(), self.memory_mib.copy(), self.gpus.copy(), self.running_count.copy())

    def select_nodes(self, nodes: Array) -> "FreeResources":
        """A copy of these nodes' part."""
        return FreeResources(self.cpus[nodes], self.memory_mib[nodes], self.gpus[nodes], self.running_count[nodes])

    def add_rows(self, places: Array, rows: Array, sign: int = 1) -> None:
        """Rows (of RUNNING) give back what they hold, or with -1 take it."""
        if len(rows) > _MANY:
            self._add_many(places, rows, sign)
            return
        for place, row in zip(places.tolist(), rows, strict=True):
            self._add_one(place, row, sign)

    def take_row(self, row: np.void, sign: int = 1) -> None:
        """A row of RUNNING, on the node it names; with -1 it gives it back."""
        self._add_one(int(row["node"]), row, -sign)

    def _add_one(self, place: int, row: np.void, sign: int) -> None:
        _, _, kind, devices, cpus, memory, *_ = row.item()  # the fields one by one would take three times as long
        self.cpus[place] += sign * cpus
        self.memory_mib[place] += sign * memory
        self.running_count[place] -= sign * (cpus > 0)
        if kind >= 0:
            self.gpus[place, kind] += sign * devices

    def _add_many(self, places: Array, rows: Array, sign: int) -> None:
        count, kinds = self.gpus.shape
        self.cpus += sign * _sums(places, rows["cpus"], count)
        self.memory_mib += sign * _sums(places, rows["memory"], count)
        self.running_count -= sign * _sums(places, rows["cpus"] > 0, count)
        with_devices = rows["kind"] >= 0
        where = places[with_devices] * kinds + rows["kind"][with_devices]
        self.gpus += sign * _sums(where, rows["devices"][with_devices], count * kinds).reshape(count, kinds)


def _sums(places: Array, amounts: Array, count: int) -> Array:
    return np.bincount(places, amounts, count).astype(np.int64)


def count_tasks_per_node(shape: JobShape, kind: int, free: FreeResources) -> Array:
    """How many of its tasks each node could take now, with devices of this kind (-1: none)."""
    gpus = free.gpus[:, kind] if kind >= 0 else None
    return count_tasks_in_arrays(shape, free.cpus, free.memory_mib, gpus, free.running_count)


def count_tasks_in_arrays(
    shape: JobShape, cpus: Array, memory: Array, gpus: Array | None, holders: Array
) -> Array:
    """The same over any parallel arrays."""
    wanted = shape.resources
    found = np.minimum(cpus // wanted.cpus, memory // max(wanted.memory_mib, 1))
    if gpus is not None:
        found = np.minimum(
            found, gpus * fractions_per_device(wanted.gpus) if shape.is_fractional else gpus // wanted.device_count
        )
    if shape.placement.exclusive:
        found = np.where(holders == 0, found, 0)
    return np.asarray(np.maximum(found, 0))


def distribute_tasks(capacity: Array, shape: JobShape, leftover: Array) -> Array | None:
    """How many tasks go to each node so that all have a place, or None. `leftover` says where it hurts least."""
    tasks = shape.placement.tasks
    if tasks == 1:
        return _one(capacity, leftover)
    if shape.placement.layout == "spread":
        capacity = np.minimum(capacity, 1)
    if capacity.sum() < tasks:
        return None
    chosen = np.zeros(len(capacity), np.int64)
    left = capacity.copy()
    while tasks:
        enough = left >= tasks
        if enough.any():  # the tightest node that takes the rest
            node = int(np.argmin(np.where(enough, left * _PLENTY + leftover, np.iinfo(np.int64).max)))
        else:
            node = int(np.argmax(left))
        taken = min(int(left[node]), tasks)
        chosen[node] += taken
        left[node] = 0
        tasks -= taken
    return chosen


def _one(capacity: Array, leftover: Array) -> Array | None:
    able = capacity > 0
    if not able.any():
        return None
    chosen = np.zeros(len(capacity), np.int64)
    chosen[int(np.argmin(np.where(able, leftover, np.iinfo(np.int64).max)))] = 1
    return chosen
