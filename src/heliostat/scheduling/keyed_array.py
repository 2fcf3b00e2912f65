"""Rows of numbers that come and go, kept together so that whole columns can be computed with."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_SMALLEST = 64


class KeyedArray:
    """A growing structured array. Each row belongs to a key; the order of rows means nothing."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._rows = np.zeros(_SMALLEST, dtype)
        self._keys: list[Hashable] = []
        self._where: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._where

    def add(self, key: Hashable, row: tuple[Any, ...]) -> np.void:
        place = len(self._keys)
        if place == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros(place, self._rows.dtype)])
        self._rows[place] = row
        self._keys.append(key)
        self._where[key] = place
        return self.row(key)

    def row(self, key: Hashable) -> np.void:
        """As it is now: a view, good until the next change."""
        found: np.void = self._rows[self._where[key]]
        return found

    def remove(self, key: Hashable) -> None:
        """The last row takes its place."""
        place = self._where.pop(key)
        last = self._keys.pop()
        if last != key:
            self._rows[place] = self._rows[len(self._keys)]
            self._keys[place] = last
            self._where[last] = place

    @property
    def rows(self) -> Array:
        """All of them: a view, good until the next change."""
        return self._rows[: len(self._keys)]

    def copy(self) -> "KeyedArray":
        other = KeyedArray(self._rows.dtype)
        other._rows, other._keys, other._where = self._rows.copy(), self._keys.copy(), self._where.copy()
        return other


def concatenate_rows(tables: Sequence[Array]) -> Array:
    """One below the other. NumPy's own way works out the common type of their fields each time."""
    whole = np.empty(sum(map(len, tables)), tables[0].dtype)
    place = 0
    for table in tables:
        whole[place : place + len(table)] = table
        place += len(table)
    return whole
