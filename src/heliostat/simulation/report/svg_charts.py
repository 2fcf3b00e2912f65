"""Line and bar charts as SVG. Colours are CSS classes of the page."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from heliostat.simulation.report.curves import Points

WIDTH, HEIGHT = 760, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 48
_BAR, _GAP = 11, 9

_DURATIONS = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400)
_DAY, _HOUR = 86400.0, 3600.0


@dataclass(frozen=True, slots=True)
class Axis:
    title: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    logarithmic: bool = False

    def relative_position(self, value: float) -> float:
        """From 0 (low end) to 1 (high end)."""
        low, high, value = (self._scaled(one) for one in (self.low, self.high, value))
        return min(1.0, max(0.0, (value - low) / (high - low)))

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, 1e-9)) if self.logarithmic else value


def line_chart(label: str, x: Axis, y: Axis, series: Mapping[str, Points]) -> str:
    """One line for each series, in the order of the legend."""
    body = [*_grid(x, y, HEIGHT), *(_line(index, x, y, points) for index, points in enumerate(series.values()))]
    return _svg(label, HEIGHT, body)


def bar_chart(label: str, x: Axis, groups: Sequence[str], series: Mapping[str, Sequence[float]]) -> str:
    """Groups from top to bottom, each with one bar per series."""
    group_height = len(series) * _BAR + _GAP
    height = _TOP + _BOTTOM + group_height * len(groups)
    left = 150
    body = list(_vertical(x, height, left))
    for row, group in enumerate(groups):
        top = _TOP + row * group_height + _GAP / 2
        body.append(_text(left - 8, top + len(series) * _BAR / 2 + 4, _short(group), "end"))
        for index, values in enumerate(series.values()):
            width = max(1.0, x.relative_position(values[row]) * (WIDTH - left - _RIGHT))
            tooltip = f"<title>{escape(group)}, {escape(list(series)[index])}: {values[row]:,.2f}</title>"
            place = f'x="{left}" y="{top + index * _BAR:.1f}" width="{width:.1f}" height="{_BAR - 1}"'
            body.append(f'<rect class="s{index}" {place}>{tooltip}</rect>')
    return _svg(label, height, body)


def _svg(label: str, height: float, body: Iterable[str]) -> str:
    view = f'viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {view}>{"".join(body)}</svg>'


def _line(index: int, x: Axis, y: Axis, points: Points) -> str:
    places = " ".join(f"{_across(x, a, _LEFT):.1f},{_up(y, b):.1f}" for a, b in points)
    return f'<polyline class="line s{index}" points="{places}"/>'


def _grid(x: Axis, y: Axis, height: float) -> Iterable[str]:
    yield from _vertical(x, height, _LEFT)
    for value, label in y.ticks:
        at = _up(y, value)
        yield f'<line class="grid" x1="{_LEFT}" y1="{at:.1f}" x2="{WIDTH - _RIGHT}" y2="{at:.1f}"/>'
        yield _text(_LEFT - 8, at + 4, label, "end")
    middle = _TOP + (height - _TOP - _BOTTOM) / 2
    yield f'<text class="title" transform="translate(14 {middle:g}) rotate(-90)">{escape(y.title)}</text>'


def _vertical(x: Axis, height: float, left: float) -> Iterable[str]:
    for value, label in x.ticks:
        at = _across(x, value, left)
        yield f'<line class="grid" x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{height - _BOTTOM:g}"/>'
        yield _text(at, height - _BOTTOM + 16, label, "middle")
    yield f'<text class="title" x="{(left + WIDTH - _RIGHT) / 2:g}" y="{height - 8:g}">{escape(x.title)}</text>'


def _across(axis: Axis, value: float, left: float) -> float:
    return left + axis.relative_position(value) * (WIDTH - left - _RIGHT)


def _up(axis: Axis, value: float) -> float:
    return HEIGHT - _BOTTOM - axis.relative_position(value) * (HEIGHT - _TOP - _BOTTOM)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _short(text: str) -> str:
    return text if len(text) <= 20 else text[:19] + "…"


def linear_axis(title: str, highest: float, label: Callable[[float], str] = "{:g}".format) -> Axis:
    """From 0 to at least `highest`."""
    step = round_tick_step(max(highest, 1e-9) / 5)
    count = max(1, math.ceil(highest / step - 1e-9))
    return Axis(title, 0.0, step * count, tuple((step * n, label(step * n)) for n in range(count + 1)))


def duration_axis(title: str, longest: float) -> Axis:
    """Logarithmic, from one second."""
    high = max(longest, 60.0)
    shown = tuple((float(s), format_tick_duration(s)) for s in _DURATIONS if s <= high)
    return Axis(title, 1.0, high, shown, logarithmic=True)


def factor_axis(title: str, highest: float) -> Axis:
    """Logarithmic, from 1 to a power of ten."""
    powers = max(1, math.ceil(math.log10(max(highest, 1.0)) - 1e-9))
    return Axis(
        title, 1.0, 10.0**powers, tuple((10.0**n, f"{10**n:,}") for n in range(powers + 1)), logarithmic=True
    )


def elapsed_time_axis(title: str, seconds: float) -> Axis:
    """Linear, in days; in hours up to two days."""
    unit, name = (_DAY, "days") if seconds > 2 * _DAY else (_HOUR, "hours")
    step = round_tick_step(max(seconds / unit, 1e-9) / 8)
    ticks = tuple((step * n * unit, f"{step * n:g}") for n in range(math.floor(seconds / unit / step) + 1))
    return Axis(f"{title}, {name}", 0.0, max(seconds, 1.0), ticks)


def round_tick_step(least: float) -> float:
    """1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next((n * power for n in (1, 2, 5) if n * power >= least * (1 - 1e-9)), 10 * power)


def format_tick_duration(seconds: float) -> str:
    units: Sequence[tuple[float, str]] = ((_DAY, "d"), (_HOUR, "h"), (60, "min"), (1, "s"))
    size, unit = next(((size, unit) for size, unit in units if seconds >= size), (1, "s"))
    return f"{seconds / size:g} {unit}"
