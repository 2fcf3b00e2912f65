"""How a forecast reads."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from heliostat.cli.value_format import format_duration, format_time_short, parse_time

if TYPE_CHECKING:
    from heliostat.client.api_types import Forecast, ForecastAccuracy

_NOW_SECONDS = 60.0
_OWN = "trial runs"

_FEW = 5  # forecasts: fewer say little about the next one


def format_likely_start(forecast: "Forecast") -> str:
    """`in about 2h10m`."""
    seconds = _seconds_from_now(forecast["likely_at"])
    return "any moment" if seconds < _NOW_SECONDS else f"in about {_rough(seconds)}"


def format_forecast(forecast: "Forecast") -> str:
    """`in about 2h10m, between 14:05 and 16:40 (in 8 of 10 trial runs)`."""
    begin, end = format_time_short(forecast["earliest_at"]), format_time_short(forecast["latest_at"])
    span = f"between {begin} and {end}" if begin != end else f"at {begin}"
    part, runs = forecast["confidence"], forecast["runs"]
    sure = "" if part is None else f" (in {round(part * runs)} of {runs} trial runs)"
    if forecast.get("source", _OWN) != _OWN:
        return f"{format_likely_start(forecast)}, by {end} ({forecast['source']})"
    return f"{format_likely_start(forecast)}, {span}{sure}"


def format_start_by_time_limits(forecast: "Forecast") -> str | None:
    at = forecast["limits_at"]
    return None if at is None else f"{format_time_short(at)}, if every job takes all its time"


def format_forecast_accuracy(accuracy: "ForecastAccuracy | None") -> str | None:
    if not accuracy:
        return None
    if accuracy["of"] < _FEW:
        return "too few have been put to the test here to say how good they are"
    return f"{accuracy['within']} of the last {accuracy['of']} starts were within the range first told"


def _rough(seconds: float) -> str:
    """Without the seconds that nobody can foretell."""
    return format_duration(seconds // 60 * 60).removesuffix("00s")


def _seconds_from_now(text: str) -> float:
    at = parse_time(text)
    return (at - datetime.now(UTC)).total_seconds() if at else 0.0
