"""Job shapes: the resources and constraints that jobs have in common, so that results can be shared."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from heliostat.models import PlacementRequest, Resources

_ANYWHERE = PlacementRequest()
Item = TypeVar("Item", bound=Hashable)


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
