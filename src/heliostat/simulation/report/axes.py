"""Scales of plots: from values to places, with ticks at round values."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_DURATIONS = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400)
_DAY, _HOUR = 86400.0, 3600.0


@dataclass(frozen=True, slots=True)
class Axis:
    """Places run from 0 to 1."""

    title: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    logarithmic: bool = False

    def place(self, value: float) -> float:
        low, high, value = (self._scaled(one) for one in (self.low, self.high, value))
        return min(1.0, max(0.0, (value - low) / (high - low)))

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, 1e-9)) if self.logarithmic else value


def linear(title: str, highest: float, label: Callable[[float], str] = "{:g}".format) -> Axis:
    """From 0 to at least `highest`."""
    step = round_step(max(highest, 1e-9) / 5)
    count = max(1, math.ceil(highest / step - 1e-9))
    return Axis(title, 0.0, step * count, tuple((step * n, label(step * n)) for n in range(count + 1)))


def durations(title: str, longest: float) -> Axis:
    """Logarithmic, from a second up."""
    high = max(longest, 60.0)
    shown = tuple((float(s), in_words(s)) for s in _DURATIONS if s <= high)
    return Axis(title, 1.0, high, shown, logarithmic=True)


def factors(title: str, highest: float) -> Axis:
    """Logarithmic, from 1 up to a power of ten."""
    powers = max(1, math.ceil(math.log10(max(highest, 1.0)) - 1e-9))
    return Axis(
        title, 1.0, 10.0**powers, tuple((10.0**n, f"{10**n:,}") for n in range(powers + 1)), logarithmic=True
    )


def elapsed(title: str, seconds: float) -> Axis:
    """Linear, in days; in hours when that is all there is."""
    unit, name = (_DAY, "days") if seconds > 2 * _DAY else (_HOUR, "hours")
    step = round_step(max(seconds / unit, 1e-9) / 8)
    ticks = tuple((step * n * unit, f"{step * n:g}") for n in range(math.floor(seconds / unit / step) + 1))
    return Axis(f"{title}, {name}", 0.0, max(seconds, 1.0), ticks)


def round_step(least: float) -> float:
    """1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next((n * power for n in (1, 2, 5) if n * power >= least * (1 - 1e-9)), 10 * power)


def in_words(seconds: float) -> str:
    units: Sequence[tuple[float, str]] = ((_DAY, "d"), (_HOUR, "h"), (60, "min"), (1, "s"))
    size, unit = next(((size, unit) for size, unit in units if seconds >= size), (1, "s"))
    return f"{seconds / size:g} {unit}"
