"""Curves for the charts: distributions, utilisation and queue length over time."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heliostat.simulation.metrics import FloatArray

_POINTS = 240
Points = list[tuple[float, float]]


def cumulative_distribution(values: FloatArray, least: float) -> Points:
    """(value, percent of jobs with at most this value); values below `least` are raised to it."""
    if not len(values):
        return []
    percents = np.linspace(0, 100, _POINTS + 1)
    return _points(np.maximum(np.percentile(values, percents), least), percents)


def utilisation_over_time(attempts: FloatArray, sizes: FloatArray, capacity: float, until: float) -> Points:
    """(seconds, percent of the capacity in use), averaged over equal steps."""
    held = sizes[attempts[:, 0].astype(np.intp)]
    edges = np.linspace(0, max(until, 1.0), _POINTS + 1)
    total = _accumulated(attempts[:, 1], held, edges) - _accumulated(attempts[:, 2], held, edges)
    return _means(edges, total, 100 / capacity)


def queue_length_over_time(attempts: FloatArray, submitted: ArrayLike, until: float) -> Points:
    """(seconds, pending jobs), averaged over equal steps. A preempted job is pending again."""
    arrivals, edges = np.asarray(submitted, dtype=np.float64), np.linspace(0, max(until, 1.0), _POINTS + 1)
    preempted = attempts[_is_not_last(attempts), 2]
    waiting = np.concatenate([arrivals, preempted])
    total = _accumulated(waiting, np.ones(len(waiting)), edges)
    total -= _accumulated(attempts[:, 1], np.ones(len(attempts)), edges)
    return _means(edges, total, 1.0)


def _is_not_last(attempts: FloatArray) -> NDArray[np.bool_]:
    """Which attempts are not the last of their job."""
    last = np.zeros(int(attempts[:, 0].max(initial=-1)) + 1, dtype=np.intp)
    job_indexes = attempts[:, 0].astype(np.intp)
    last[job_indexes] = np.arange(len(attempts))  # later ones overwrite earlier ones
    result: NDArray[np.bool_] = last[job_indexes] != np.arange(len(attempts))
    return result


def _accumulated(times: FloatArray, weights: FloatArray, at: FloatArray) -> FloatArray:
    """For each value of `at`: the sum of weight times elapsed time over all earlier `times`."""
    order = np.argsort(times, kind="stable")
    times, weights = times[order], weights[order]
    before = np.searchsorted(times, at)
    weight = np.concatenate([[0.0], np.cumsum(weights)])[before]
    weighted_time = np.concatenate([[0.0], np.cumsum(weights * times)])[before]
    result: FloatArray = at * weight - weighted_time
    return result


def _means(edges: FloatArray, total: FloatArray, factor: float) -> Points:
    means = np.diff(total) / np.diff(edges) * factor
    return _points((edges[:-1] + edges[1:]) / 2, np.maximum(means, 0.0))


def _points(xs: FloatArray, ys: FloatArray) -> Points:
    return [(float(x), float(y)) for x, y in zip(xs, ys, strict=True)]
