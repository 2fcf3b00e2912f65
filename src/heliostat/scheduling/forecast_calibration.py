"""Forecast ranges that are as wide as past errors require (conformal prediction).

A simulation of the queue does not know what will be submitted, so the range of its runs is too narrow. Both ends
of a range are moved by the errors of past forecasts of similar waits, so that one of ten starts is before the
range and one of ten after it. If recent starts were outside more often than that, the ends are moved further
(adaptive conformal inference). Jobs submitted together have the same errors and count like one job.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from heliostat.models.forecasts import ForecastRange, PastForecast
from heliostat.scheduling.forecast import Forecast
from heliostat.scheduling.keyed_array import Array

COVERAGE = 0.8  # fraction of the starts that are within their range
MAX_PAST_FORECASTS = 1_000
_MIN_KNOWN = 20  # outcomes, before a range is said to contain eight of ten starts
_OUTSIDE = (1 - COVERAGE) / 2  # at either end
_ADAPTATION = 0.005  # change of this fraction per start outside
_SIMILAR_WEIGHT = 10.0  # weight of the past forecasts that are used
_MAX_TOGETHER_SECONDS = 3600.0  # forecasts made within this time, and within the wait, share the weight of one
_PRIOR_ERRORS = (-0.7, 0.0, 0.7)  # without past forecasts: from half to twice the wait
_MAX_SECONDS = 366 * 86400.0
_MINUTE = 60.0  # added to all waits: for short ones seconds do not matter


@dataclass(frozen=True, slots=True)
class ForecastAccuracy:
    """How many of the last forecasts contained the actual start."""

    within: int = 0
    of: int = 0
    early: int = 0  # started before the range
    late: int = 0
    median_width: float | None = None  # width of the range as a multiple of the wait


def forecast_range(forecast: Forecast) -> ForecastRange:
    return ForecastRange(
        forecast.earliest_at.timestamp(), forecast.likely_at.timestamp(), forecast.latest_at.timestamp()
    )


def measure_accuracy(past: Iterable[PastForecast]) -> ForecastAccuracy:
    """Of the forecasts whose jobs have started."""
    started = [(one, one.started_at) for one in past if one.started_at is not None]
    if not started:
        return ForecastAccuracy()
    early, late = sum(one.is_early() for one, _ in started), sum(one.is_late(at) for one, at in started)
    widths = [(one.shown.latest - one.shown.earliest) / max(at - one.made_at, 1.0) for one, at in started]
    within = len(started) - early - late
    return ForecastAccuracy(within, len(started), early, late, round(float(np.median(widths)), 2))


class ForecastCalibration:
    """Learns from past forecasts, oldest first, whose jobs have started or are later than likely."""

    def __init__(self, past: Sequence[PastForecast], now: datetime) -> None:
        at = now.timestamp()
        known = [one for one in past if one.started_at is not None or at > one.computed.likely]
        known = known[-MAX_PAST_FORECASTS:]
        self._is_reliable = len(known) >= _MIN_KNOWN
        self._early = _fraction_outside([one.is_early() for one in known])
        self._late = _fraction_outside([one.is_late(at) for one in known])
        self._weights = _weights(known)
        self._likely, self._errors = _log_waits_and_errors(known, at)

    def calibrate(self, forecast: Forecast, since: datetime) -> Forecast:
        """A new forecast with a calibrated range; without a confidence if few outcomes are known. `since`: from
        when on the job waits, now or later; the range does not begin before."""
        computed = (forecast.earliest_at, forecast.likely_at, forecast.latest_at)
        waits = [(at - since).total_seconds() for at in computed]
        errors, weights = self._similar_errors(waits[1])
        fractions = (self._early, 0.5, 1 - self._late)
        earliest, likely, latest = (
            max(0.0, (wait + _MINUTE) * float(np.exp(_quantile(errors[:, end], weights, fraction))) - _MINUTE)
            for end, (wait, fraction) in enumerate(zip(waits, fractions, strict=True))
        )
        begin, end = min(earliest, latest), max(earliest, latest)
        times = [_after(since, seconds) for seconds in (begin, min(max(likely, begin), end), end)]
        confidence = COVERAGE if self._is_reliable else None
        return replace(
            forecast, earliest_at=times[0], likely_at=times[1], latest_at=times[2], confidence=confidence
        )

    def _similar_errors(self, likely_seconds: float) -> tuple[Array, Array]:
        """Errors at the three times of past forecasts of similar waits, and their weights."""
        distance = np.abs(self._likely - np.log(max(likely_seconds, 0.0) + _MINUTE))
        nearest = np.argsort(distance, kind="stable")
        count = int(np.searchsorted(np.cumsum(self._weights[nearest]), _SIMILAR_WEIGHT)) + 1
        nearest = nearest[: max(count, _MIN_KNOWN)]
        prior = np.repeat(np.array(_PRIOR_ERRORS)[:, None], 3, axis=1)
        return np.vstack([self._errors[nearest], prior]), np.append(self._weights[nearest], np.ones(len(prior)))


def _fraction_outside(outside: Sequence[bool]) -> float:
    """The fraction of starts to leave outside at one end, so that it becomes one of ten in the long run."""
    return _OUTSIDE + _ADAPTATION * (_OUTSIDE * len(outside) - sum(outside))


def _weights(known: Sequence[PastForecast]) -> Array:
    """Jobs that wait at the same time have the same errors."""
    made_at = np.array([one.made_at for one in known])
    waits = np.array([one.computed.likely for one in known]) - made_at
    together = np.clip(waits, _MINUTE, _MAX_TOGETHER_SECONDS)
    in_order = np.sort(made_at)
    first = np.searchsorted(in_order, made_at - together, "left")
    last = np.searchsorted(in_order, made_at + together, "right")
    return np.asarray(1.0 / (last - first))


def _log_waits_and_errors(known: Sequence[PastForecast], now: float) -> tuple[Array, Array]:
    """Logarithms of the likely waits, and of the actual wait as a multiple of the wait until each of the times."""
    if not known:
        return np.empty(0), np.empty((0, 3))
    computed = np.array([(one.computed.earliest, one.computed.likely, one.computed.latest) for one in known])
    made_at = np.array([one.made_at for one in known])[:, None]
    actual = np.array([now if one.started_at is None else one.started_at for one in known])[:, None]
    waits = np.log(np.maximum(computed - made_at, 0.0) + _MINUTE)
    return waits[:, 1], np.log(np.maximum(actual - made_at, 0.0) + _MINUTE) - waits


def _quantile(values: Array, weights: Array, fraction: float) -> float:
    order = np.argsort(values)
    sums = np.cumsum(weights[order])
    return float(np.interp(fraction, (sums - weights[order] / 2) / sums[-1], values[order]))


def _after(since: datetime, seconds: float) -> datetime:
    return datetime.fromtimestamp(since.timestamp() + min(seconds, _MAX_SECONDS), UTC)
