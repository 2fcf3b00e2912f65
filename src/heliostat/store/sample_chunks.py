"""Chunks of usage samples: packing, rolling up and resampling. Pure.

A chunk contains the values of one subject (a job, a node, the cluster) in equal steps: a row for each step, a
column for each quantity. On disk a value is a half float with a precision of 1/2000: enough for a plot. A day of a
job with one GPU takes 70 kB.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SampleMatrix = NDArray[np.float64]
"""Steps by columns; NaN: unknown."""

_UNIT = 2.0**14  # of stored values: a thousandth of a core differs from 0, and a PiB in MiB still fits
_MAX_HALF_FLOAT = 65504.0
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
        """Number of steps with at least one value."""
        return int((~np.isnan(self.mean)).any(axis=1).sum())


@dataclass(frozen=True, slots=True)
class TimeGrid:
    """Equal steps for resampling."""

    first: int
    step: int
    count: int


def pack_row(values: Sequence[float | None]) -> bytes:
    """One step of all columns. Values are limited to the range of the format."""
    scaled = [_NAN if value is None else min(max(value / _UNIT, 0.0), _MAX_HALF_FLOAT) for value in values]
    return struct.pack(f"<{len(scaled)}e", *scaled)


def pack(values: SampleMatrix) -> bytes:
    packed: bytes = np.clip(values / _UNIT, 0.0, _MAX_HALF_FLOAT).astype("<f2").tobytes()
    return packed


def unpack(data: bytes, columns: int) -> SampleMatrix:
    """The inverse of `pack`, or of several `pack_row`; an incomplete last step is ignored."""
    whole = len(data) // (2 * columns)
    steps = np.frombuffer(data, "<f2", whole * columns).astype(np.float64)
    return steps.reshape(whole, columns) * _UNIT


def add_unknown_columns(values: SampleMatrix, columns: int) -> SampleMatrix:
    """With this number of columns; new ones are unknown."""
    missing = columns - values.shape[1]
    return values if missing <= 0 else np.pad(values, ((0, 0), (0, missing)), constant_values=np.nan)


def integrate_chunks(chunks: Iterable[SampleChunk], start: float, end: float) -> float:
    """The first column times seconds, of the steps that begin within this period: watts become joules."""
    total = 0.0
    for chunk in chunks:
        at = chunk.first + np.arange(len(chunk.mean)) * chunk.step
        total += float(np.nansum(chunk.mean[(at >= start) & (at < end), 0])) * chunk.step
    return total


def is_always_set(chunks: Iterable[SampleChunk], column: int) -> bool:
    """Whether this column is 1 wherever the first column is known."""
    for chunk in chunks:
        known = ~np.isnan(chunk.mean[:, 0])
        if known.any() and (chunk.mean.shape[1] <= column or not (chunk.mean[known, column] >= 1).all()):
            return False
    return True


def roll_up_chunks(chunks: Iterable[SampleChunk], step: int) -> SampleChunk:
    """All chunks as one, in steps of this length: the mean and the maximum of known values."""
    parts = list(chunks)
    first = min(chunk.first for chunk in parts) // step * step
    end = max(chunk.end for chunk in parts)
    return resample_chunks(parts, TimeGrid(first, step, -(-(end - first) // step)))


def in_steps(chunk: SampleChunk, step: int) -> SampleChunk:
    """In steps of this length: rolled up, or longer steps repeated."""
    if chunk.step == step:
        return chunk
    if chunk.step < step:
        return roll_up_chunks([chunk], step)
    repeats = chunk.step // step
    return SampleChunk(chunk.first, step, *(np.repeat(part, repeats, axis=0) for part in (chunk.mean, chunk.max)))


def resample_chunks(chunks: Iterable[SampleChunk], grid: TimeGrid) -> SampleChunk:
    """Each step of a chunk counts at its start, weighted by its length. Steps outside the grid are ignored."""
    parts = list(chunks)
    columns = max((chunk.mean.shape[1] for chunk in parts), default=0)
    total, seconds = np.zeros((grid.count, columns)), np.zeros((grid.count, columns))
    largest = np.full((grid.count, columns), -np.inf)
    for chunk in parts:
        at = (chunk.first + np.arange(len(chunk.mean)) * chunk.step - grid.first) // grid.step
        inside = (at >= 0) & (at < grid.count)
        mean, maximum = (
            add_unknown_columns(chunk.mean[inside], columns),
            add_unknown_columns(chunk.max[inside], columns),
        )
        np.add.at(total, at[inside], np.nan_to_num(mean) * chunk.step)
        np.add.at(seconds, at[inside], ~np.isnan(mean) * chunk.step)
        np.maximum.at(largest, at[inside], np.where(np.isnan(maximum), -np.inf, maximum))
    known = seconds > 0
    mean = np.where(known, total / np.where(known, seconds, 1), np.nan)
    return SampleChunk(grid.first, grid.step, mean, np.where(np.isinf(largest), np.nan, largest))
