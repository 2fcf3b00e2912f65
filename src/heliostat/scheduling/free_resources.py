"""Free resources of nodes, and how many tasks of a shape fit there."""

from dataclasses import dataclass

import numpy as np

from heliostat.scheduling.job_shape import JobShape, TaskRequest
from heliostat.scheduling.keyed_array import Array

_PLENTY = 1 << 30
_FEW_ROWS = 4  # up to here a loop is faster than sums over whole columns


@dataclass(slots=True)
class FreeResources:
    """Parallel arrays over some nodes. Mutable, used for one plan."""

    cpus: Array
    memory_mib: Array
    gpus: Array  # nodes x kinds of device: whole devices
    running_count: Array  # rows of running jobs on the node

    def copy(self) -> "FreeResources":
        return FreeResources(self.cpus.copy(), self.memory_mib.copy(), self.gpus.copy(), self.running_count.copy())

    def select_nodes(self, nodes: Array) -> "FreeResources":
        """A copy for these nodes."""
        return FreeResources(self.cpus[nodes], self.memory_mib[nodes], self.gpus[nodes], self.running_count[nodes])

    def add_rows(self, indexes: Array, rows: Array, sign: int = 1) -> None:
        """Release the resources of these rows (of RUNNING_DTYPE), or allocate them with sign -1."""
        if len(rows) > _FEW_ROWS:
            self._add_many(indexes, rows, sign)
            return
        for index, row in zip(indexes.tolist(), rows, strict=True):
            self._add_one(index, row, sign)

    def take_row(self, row: np.void, sign: int = 1) -> None:
        """Allocate the resources of this row (of RUNNING_DTYPE) on its node, or release them with sign -1."""
        self._add_one(int(row["node"]), row, -sign)

    def _add_one(self, index: int, row: np.void, sign: int) -> None:
        _, _, kind, devices, cpus, memory, *_ = row.item()  # three times as fast as access by field
        self.cpus[index] += sign * cpus
        self.memory_mib[index] += sign * memory
        self.running_count[index] -= sign * (cpus > 0)
        if kind >= 0:
            self.gpus[index, kind] += sign * devices

    def _add_many(self, indexes: Array, rows: Array, sign: int) -> None:
        count, kinds = self.gpus.shape
        self.cpus += sign * _sums(indexes, rows["cpus"], count)
        self.memory_mib += sign * _sums(indexes, rows["memory"], count)
        self.running_count -= sign * _sums(indexes, rows["cpus"] > 0, count)
        with_devices = rows["kind"] >= 0
        where = indexes[with_devices] * kinds + rows["kind"][with_devices]
        self.gpus += sign * _sums(where, rows["devices"][with_devices], count * kinds).reshape(count, kinds)


def _sums(indexes: Array, amounts: Array, count: int) -> Array:
    return np.bincount(indexes, amounts, count).astype(np.int64)


def count_tasks_per_node(request: TaskRequest, kind: int, free: FreeResources) -> Array:
    """How many such tasks fit on each node now, with devices of this kind (-1: none)."""
    gpus = free.gpus[:, kind] if kind >= 0 else None
    return count_tasks_in_arrays(request, free.cpus, free.memory_mib, gpus, free.running_count)


def count_tasks_in_arrays(
    request: TaskRequest, cpus: Array, memory: Array, gpus: Array | None, running_count: Array
) -> Array:
    """The same for any parallel arrays of free amounts."""
    counts = np.minimum(cpus // request.cpus, memory // request.memory_mib)
    if gpus is not None:
        by_device = gpus * request.tasks_per_device if request.is_fractional else gpus // request.device_count
        counts = np.minimum(counts, by_device)
    if request.is_exclusive:
        counts = np.where(running_count == 0, counts, 0)
    return np.asarray(np.maximum(counts, 0))


def distribute_tasks(capacity: Array, shape: JobShape, leftover: Array) -> Array | None:
    """How many tasks go to each node so that all fit, or None. Nodes with a low `leftover` are preferred."""
    tasks = shape.placement.tasks
    if tasks == 1:
        return _place_single_task(capacity, leftover)
    if shape.placement.layout == "spread":
        capacity = np.minimum(capacity, 1)
    if capacity.sum() < tasks:
        return None
    chosen = np.zeros(len(capacity), np.int64)
    left = capacity.copy()
    while tasks:
        enough = left >= tasks
        if enough.any():  # the tightest node that fits all remaining tasks
            node = int(np.argmin(np.where(enough, left * _PLENTY + leftover, np.iinfo(np.int64).max)))
        else:
            node = int(np.argmax(left))
        taken = min(int(left[node]), tasks)
        chosen[node] += taken
        left[node] = 0
        tasks -= taken
    return chosen


def _place_single_task(capacity: Array, leftover: Array) -> Array | None:
    fitting = capacity > 0
    if not fitting.any():
        return None
    chosen = np.zeros(len(capacity), np.int64)
    chosen[int(np.argmin(np.where(fitting, leftover, np.iinfo(np.int64).max)))] = 1
    return chosen
