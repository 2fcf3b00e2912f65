"""What follows one another and differs in nothing but its number can be written and read at once: pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

T = TypeVar("T")


def runs(things: Iterable[T], number: Callable[[T], int], rest: Callable[[T], object]) -> Iterator[tuple[T, int]]:
    """The first of each run, and how many follow one another with the same rest."""

    def kind(placed: tuple[int, T]) -> tuple[int, object]:
        place, thing = placed
        return number(thing) - place, rest(thing)

    for _, run in groupby(enumerate(things), kind):
        alike = [thing for _, thing in run]
        yield alike[0], len(alike)


def first_of(row: Sequence[Any]) -> Any:
    """The number of a row that begins with it."""
    return row[0]


def all_but_first_of(row: Sequence[Any]) -> Any:
    return row[1:]
