"""Samples as they are packed, rolled up and laid onto another grid. Pure.

A chunk holds the values of one subject (a job, a node, the cluster) at equal steps: a row for each step, a column
for each thing that is read. On disk a value is a half float, good to one part in two thousand: enough for a plot,
and a day of a job with one GPU is 70 kB.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SampleMatrix = NDArray[np.float64]
"""Steps by columns; NaN is not known."""

_UNIT = 2.0**14  # of what is stored: a thousandth of a core is told from nothing, and a PiB in MiB still fits
_MOST = 65504.0  # that a half float can be
_NAN = float("nan")


@dataclass(frozen=True, slots=True, eq=False)
class SampleChunk:
    """Equal steps from `first`, which is in seconds since 1970 and a multiple of the step."""

    first: int
    step: int
    mean: SampleMatrix
    max: SampleMatrix

    @property
    def end(self) -> int:
        return self.first + self.step * len(self.mean)

    @property
    def known_steps(self) -> int:
        """How many steps have any value."""
        return int((~np.isnan(self.mean)).any(axis=1).sum())


@dataclass(frozen=True, slots=True)
class TimeGrid:
    """Where values are to be laid: so many equal steps."""

    first: int
    step: int
    count: int


def pack_row(values: Sequence[float | None]) -> bytes:
    """One step of all columns. What is below zero is zero, what is too large the largest there is."""
    scaled = [_NAN if value is None else min(max(value / _UNIT, 0.0), _MOST) for value in values]
    return struct.pack(f"<{len(scaled)}e", *scaled)


def pack(values: SampleMatrix) -> bytes:
    packed: bytes = np.clip(values / _UNIT, 0.0, _MOST).astype("<f2").tobytes()
    return packed


def unpack(data: bytes, columns: int) -> SampleMatrix:
    """What `pack` or several `pack_row` have made of it; a step that is not whole is left out."""
    whole = len(data) // (2 * columns)
    steps = np.frombuffer(data, "<f2", whole * columns).astype(np.float64)
    return steps.reshape(whole, columns) * _UNIT


def add_unknown_columns(values: SampleMatrix, columns: int) -> SampleMatrix:
    """With so many columns; the new ones are not known."""
    missing = columns - values.shape[1]
    return values if missing <= 0 else np.pad(values, ((0, 0), (0, missing)), constant_values=np.nan)


def roll_up_chunks(chunks: Iterable[SampleChunk], step: int) -> SampleChunk:
    """All of them as one, in steps of that length: the mean of what is known, and the largest."""
    parts = list(chunks)
    first = min(chunk.first for chunk in parts) // step * step
    end = max(chunk.end for chunk in parts)
    return resample_chunks(parts, TimeGrid(first, step, -(-(end - first) // step)))


def resample_chunks(chunks: Iterable[SampleChunk], grid: TimeGrid) -> SampleChunk:
    """Each step of the chunks counts where it begins, for as long as it is. What lies outside is left out."""
    parts = list(chunks)
    columns = max((chunk.mean.shape[1] for chunk in parts), default=0)
    total, seconds = np.zeros((grid.count, columns)), np.zeros((grid.count, columns))
    largest = np.full((grid.count, columns), -np.inf)
    for chunk in parts:
        at = (chunk.first + np.arange(len(chunk.mean)) * chunk.step - grid.first) // grid.step
        inside = (at >= 0) & (at < grid.count)
        mean, most = (
            add_unknown_columns(chunk.mean[inside], columns),
            add_unknown_columns(chunk.max[inside], columns),
        )
        np.add.at(total, at[inside], np.nan_to_num(mean) * chunk.step)
        np.add.at(seconds, at[inside], ~np.isnan(mean) * chunk.step)
        np.maximum.at(largest, at[inside], np.where(np.isnan(most), -np.inf, most))
    known = seconds > 0
    mean = np.where(known, total / np.where(known, seconds, 1), np.nan)
    return SampleChunk(grid.first, grid.step, mean, np.where(np.isinf(largest), np.nan, largest))
