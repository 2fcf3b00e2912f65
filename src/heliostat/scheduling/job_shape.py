"""What a job needs of nodes: many jobs ask for the same, and it is worked out once."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from heliostat.models import PlacementRequest, Resources

_ANYWHERE = PlacementRequest()
Item = TypeVar("Item", bound=Hashable)


@dataclass(frozen=True)
class JobShape:
    """Everything that decides where a job fits, except for how long it runs. Its hash is worked out once: it is
    looked up many times in each plan."""

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
        """Whether it takes a part of one device."""
        return 0 < self.resources.gpus < 1


class IndexedSet(Generic[Item]):
    """Gives equal things the same small number, for good."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._known: dict[Item, int] = {}

    def index_of(self, thing: Item) -> int:
        number = self._known.get(thing)
        if number is None:
            number = self._known[thing] = len(self.items)
            self.items.append(thing)
        return number

    def copy(self) -> "IndexedSet[Item]":
        other: IndexedSet[Item] = IndexedSet()
        other.items, other._known = self.items.copy(), self._known.copy()
        return other
