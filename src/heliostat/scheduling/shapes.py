"""What a job needs of nodes: many jobs ask for the same, and it is worked out once."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from heliostat.models import Placement, Resources

_ANYWHERE = Placement()
Thing = TypeVar("Thing", bound=Hashable)


@dataclass(frozen=True)
class Shape:
    """Everything that decides where a job fits, except for how long it runs. Its hash is worked out once: it is
    looked up many times in each plan."""

    resources: Resources
    placement: Placement = _ANYWHERE
    data_class: int = 0

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.resources, self.placement, self.data_class))

    @property
    def is_part(self) -> bool:
        """Whether it takes a part of one device."""
        return 0 < self.resources.gpus < 1


class Numbers(Generic[Thing]):
    """Gives equal things the same small number, for good."""

    def __init__(self) -> None:
        self.things: list[Thing] = []
        self._known: dict[Thing, int] = {}

    def of(self, thing: Thing) -> int:
        number = self._known.get(thing)
        if number is None:
            number = self._known[thing] = len(self.things)
            self.things.append(thing)
        return number

    def fork(self) -> "Numbers[Thing]":
        other: Numbers[Thing] = Numbers()
        other.things, other._known = self.things.copy(), self._known.copy()
        return other
