"""Job shapes: the resources and constraints that jobs have in common, so that results can be shared."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from heliostat.models import PlacementRequest, Resources
from heliostat.scheduling.feasibility import fractions_per_device
from heliostat.scheduling.keyed_array import Array

_ANYWHERE = PlacementRequest()
Item = TypeVar("Item", bound=Hashable)


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """What one task needs on a node. The amounts are numbers, or columns with a row for each of several shapes:
    the same code counts for one shape, and for many in one pass."""

    cpus: Any
    memory_mib: Any
    gpus: Any
    device_count: Any
    tasks_per_device: Any  # more than 1 only for fractions of a GPU
    is_fractional: bool
    is_exclusive: bool

    def select_rows(self, rows: Array) -> "TaskRequest":
        """The columns for some of the shapes."""
        cpus, memory_mib, gpus = self.cpus[rows], self.memory_mib[rows], self.gpus[rows]
        devices, per_device = self.device_count[rows], self.tasks_per_device[rows]
        return TaskRequest(cpus, memory_mib, gpus, devices, per_device, self.is_fractional, self.is_exclusive)


@dataclass(frozen=True)
class JobShape:
    """Everything that decides where a job fits, except its time limit. The hash is cached, because a plan looks
    shapes up many times."""

    resources: Resources
    placement: PlacementRequest = _ANYWHERE
    data_class: int = 0

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.resources, self.placement, self.data_class))

    @property
    def is_fractional(self) -> bool:
        """Whether it uses a fraction of a GPU."""
        return 0 < self.resources.gpus < 1

    @cached_property
    def task_request(self) -> TaskRequest:
        requested = self.resources
        return TaskRequest(
            requested.cpus,
            max(requested.memory_mib, 1),
            requested.gpus,
            requested.device_count,
            fractions_per_device(requested.gpus) if self.is_fractional else 1,
            self.is_fractional,
            self.placement.exclusive,
        )


def stack_task_requests(shapes: Sequence[JobShape]) -> TaskRequest:
    """One row for each shape. All of them are fractional, or none; all are exclusive, or none."""
    requests = [shape.task_request for shape in shapes]
    return TaskRequest(
        np.array([request.cpus for request in requests])[:, None],
        np.array([request.memory_mib for request in requests])[:, None],
        np.array([request.gpus for request in requests])[:, None],
        np.array([request.device_count for request in requests])[:, None],
        np.array([request.tasks_per_device for request in requests])[:, None],
        requests[0].is_fractional,
        requests[0].is_exclusive,
    )


class IndexedSet(Generic[Item]):
    """Assigns each distinct item a small number that never changes."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._numbers: dict[Item, int] = {}

    def index_of(self, item: Item) -> int:
        number = self._numbers.get(item)
        if number is None:
            number = self._numbers[item] = len(self.items)
            self.items.append(item)
        return number

    def copy(self) -> "IndexedSet[Item]":
        other: IndexedSet[Item] = IndexedSet()
        other.items, other._numbers = self.items.copy(), self._numbers.copy()
        return other
