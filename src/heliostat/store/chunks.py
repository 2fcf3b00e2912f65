"""Lists that are too long for one statement."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
_VARIABLES = 500  # of one statement; SQLite takes 999 at least


def chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Parts of these values, each short enough for `column.in_(part)`."""
    for start in range(0, len(values), _VARIABLES):
        yield values[start : start + _VARIABLES]
