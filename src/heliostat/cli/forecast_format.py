"""Formats forecasts of job starts and their accuracy."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from heliostat.cli.value_format import format_duration, format_time_short, parse_time

if TYPE_CHECKING:
    from heliostat.client.api_types import Forecast, ForecastAccuracy

_SOON_SECONDS = 60.0
_LATEST_SECONDS = 300.0  # a start that may be later is not very soon
_OWN_SOURCE = "simulation"
_MIN_FORECASTS = 5  # with fewer, the accuracy is not meaningful


def format_likely_start(forecast: "Forecast") -> str:
    """`in about 2h10m`."""
    seconds = _seconds_from_now(forecast["likely_at"])
    if seconds < _SOON_SECONDS and _seconds_from_now(forecast["latest_at"]) < _LATEST_SECONDS:
        return "very soon"
    return f"in about {_rough(max(seconds, _SOON_SECONDS))}"


def format_forecast(forecast: "Forecast") -> str:
    """`in about 2h10m, between 14:05 and 16:40 (80% likely)`."""
    begin, end = format_time_short(forecast["earliest_at"]), format_time_short(forecast["latest_at"])
    span = f"between {begin} and {end}" if begin != end else f"at {begin}"
    confidence, source = forecast["confidence"], forecast.get("source", _OWN_SOURCE)
    notes = [] if confidence is None else [f"{confidence:.0%} likely"]
    notes += [] if source == _OWN_SOURCE else [source]
    return f"{format_likely_start(forecast)}, {span}" + (f" ({', '.join(notes)})" if notes else "")


def format_start_by_time_limits(forecast: "Forecast") -> str | None:
    at = forecast["limits_at"]
    return None if at is None else f"{format_time_short(at)}, if every job uses its full time limit"


def format_forecast_accuracy(accuracy: "ForecastAccuracy | None") -> str | None:
    if not accuracy:
        return None
    if accuracy["of"] < _MIN_FORECASTS:
        return "too few so far to know their accuracy"
    counts = "{within} of the last {of} starts were within the first forecast ({early} earlier, {late} later)"
    width = accuracy["median_width"]
    return counts.format(**accuracy) + ("" if width is None else f"; median range: {width:.2g} times the wait")


def _rough(seconds: float) -> str:
    """Rounded down to minutes: a forecast is not more precise."""
    return format_duration(seconds // 60 * 60).removesuffix("00s")


def _seconds_from_now(text: str) -> float:
    at = parse_time(text)
    return (at - datetime.now(UTC)).total_seconds() if at else 0.0
