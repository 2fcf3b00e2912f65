"""How a forecast reads."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from heliostat.cli.units import duration, minute, parse_time

if TYPE_CHECKING:
    from heliostat.client.shapes import Accuracy, Forecast

_NOW_SECONDS = 60.0
_OWN = "trial runs"

_FEW = 5  # forecasts: fewer say little about the next one


def likely_in_words(forecast: "Forecast") -> str:
    """`in about 2h10m`."""
    seconds = _seconds_from_now(forecast["likely_at"])
    return "any moment" if seconds < _NOW_SECONDS else f"in about {_rough(seconds)}"


def forecast_in_words(forecast: "Forecast") -> str:
    """`in about 2h10m, between 14:05 and 16:40 (in 8 of 10 trial runs)`."""
    begin, end = minute(forecast["earliest_at"]), minute(forecast["latest_at"])
    span = f"between {begin} and {end}" if begin != end else f"at {begin}"
    part, runs = forecast["confidence"], forecast["runs"]
    sure = "" if part is None else f" (in {round(part * runs)} of {runs} trial runs)"
    if forecast.get("source", _OWN) != _OWN:
        return f"{likely_in_words(forecast)}, by {end} ({forecast['source']})"
    return f"{likely_in_words(forecast)}, {span}{sure}"


def limits_in_words(forecast: "Forecast") -> str | None:
    at = forecast["limits_at"]
    return None if at is None else f"{minute(at)}, if every job takes all its time"


def accuracy_in_words(accuracy: "Accuracy | None") -> str | None:
    if not accuracy:
        return None
    if accuracy["of"] < _FEW:
        return "too few have been put to the test here to say how good they are"
    return f"{accuracy['within']} of the last {accuracy['of']} starts were within the range first told"


def _rough(seconds: float) -> str:
    """Without the seconds that nobody can foretell."""
    return duration(seconds // 60 * 60).removesuffix("00s")


def _seconds_from_now(text: str) -> float:
    at = parse_time(text)
    return (at - datetime.now(UTC)).total_seconds() if at else 0.0
