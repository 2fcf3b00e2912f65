"""A structured NumPy array with rows by key, for vectorised computations over jobs."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_SMALLEST = 64


class KeyedArray:
    """A growing structured array with one row per key, in no particular order."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._rows = np.zeros(_SMALLEST, dtype)
        self._keys: list[Hashable] = []
        self._index: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._index

    def add(self, key: Hashable, row: tuple[Any, ...]) -> np.void:
        index = len(self._keys)
        if index == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros(index, self._rows.dtype)])
        self._rows[index] = row
        self._keys.append(key)
        self._index[key] = index
        return self.row(key)

    def row(self, key: Hashable) -> np.void:
        """A view; valid until the next change."""
        row: np.void = self._rows[self._index[key]]
        return row

    def remove(self, key: Hashable) -> None:
        """The last row takes its place."""
        index = self._index.pop(key)
        last = self._keys.pop()
        if last != key:
            self._rows[index] = self._rows[len(self._keys)]
            self._keys[index] = last
            self._index[last] = index

    @property
    def rows(self) -> Array:
        """All rows, as a view; valid until the next change."""
        return self._rows[: len(self._keys)]

    def copy(self) -> "KeyedArray":
        other = KeyedArray(self._rows.dtype)
        other._rows, other._keys, other._index = self._rows.copy(), self._keys.copy(), self._index.copy()
        return other


def concatenate_rows(tables: Sequence[Array]) -> Array:
    """Faster than `np.concatenate`, which computes the common type of the fields each time."""
    result = np.empty(sum(map(len, tables)), tables[0].dtype)
    offset = 0
    for table in tables:
        result[offset : offset + len(table)] = table
        offset += len(table)
    return result
