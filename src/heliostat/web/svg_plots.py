"""SVG plots: pure functions from numbers to markup, coloured by the classes `c1` … `c6` of plots.css."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup, escape

_COLOURS = 6
_LETTER_WIDTH = 7  # at the font size of plots.css
_HALF_TICK_WIDTH = 24
_MARGIN_LEFT, _MARGIN_BOTTOM, _MARGIN_TOP, _MARGIN_RIGHT = 46, 22, 8, 8

_STEPS = (60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400, 30 * 86400)
_MAX_TICKS = 7


@dataclass(frozen=True, slots=True)
class AxisScale:
    """Maps values from `low`…`high` to `low_at`…`high_at`; values outside are drawn at the edge."""

    low: float
    high: float
    low_at: float
    high_at: float

    def __call__(self, value: float) -> float:
        fraction = (value - self.low) / (self.high - self.low)
        return self.low_at + min(1.0, max(0.0, fraction)) * (self.high_at - self.low_at)


@dataclass(frozen=True, slots=True)
class Curve:
    """A named curve: points in time, None where the value is unknown."""

    name: str
    points: Sequence[tuple[datetime, float | None]]
    colour: int = 1  # 1 … 6


@dataclass(frozen=True, slots=True)
class PlotOptions:
    """How a plot is drawn. The axis ends at `axis_max` unless a value is larger."""

    title: str
    unit: str = ""
    width: int = 640
    height: int = 200
    axis_max: float | None = None
    limit_line: float | None = None  # a dashed line, for example the requested amount
    is_filled: bool = False
    start: datetime | None = None  # of the axis; None: the first point
    end: datetime | None = None


def draw_line_plot(series: Sequence[Curve], options: PlotOptions) -> Markup:
    """Curves over time, with axes."""
    frame = _Frame.around(series, options, _highest(series))
    parts = [frame.axes()]
    for one in series:
        parts += [frame.curve(run, one.colour, options.is_filled) for run in _runs(one.points)]
    if options.limit_line is not None:
        parts.append(frame.limit(options.limit_line))
    return _svg(options, series, Markup("").join(parts))


def draw_stacked_plot(series: Sequence[Curve], options: PlotOptions) -> Markup:
    """Stacked areas; all series have points at the same times, and None counts as 0."""
    sums: list[float] = [0.0] * (len(series[0].points) if series else 0)
    layers: list[tuple[int, list[tuple[datetime, float, float]]]] = []
    for one in series:
        layer = []
        for position, (at, value) in enumerate(one.points):
            below, sums[position] = sums[position], sums[position] + (value or 0.0)
            layer.append((at, below, sums[position]))
        layers.append((one.colour, layer))
    frame = _Frame.around(series, options, max(sums, default=0.0))
    parts = [frame.axes(), *(frame.layer(layer, colour) for colour, layer in layers)]
    if options.limit_line is not None:
        parts.append(frame.limit(options.limit_line))
    return _svg(options, series, Markup("").join(parts))


def draw_sparkline(
    values: Sequence[float | None], title: str, top: float | None = None, colour: int = 1
) -> Markup:
    """A small curve without axes, for a row of a table."""
    known = [value for value in values if value is not None]
    up = AxisScale(0.0, top or max(known, default=1.0) or 1.0, 19.0, 1.0)
    across = AxisScale(0.0, max(1, len(values) - 1), 1.0, 79.0)
    points = " ".join(
        f"{across(place):.1f},{up(value):.1f}" for place, value in enumerate(values) if value is not None
    )
    return Markup(
        '<svg class="plot sparkline" viewBox="0 0 80 20" preserveAspectRatio="none" role="img">'
        '<title>{}</title><polyline class="line c{}" points="{}"></polyline></svg>'
    ).format(title, _colour(colour), points)


def draw_bar(fraction: float, title: str, colour: int = 1) -> Markup:
    """A fraction (0 … 1) as a small bar; the page shows the number beside it."""
    width = 100 * min(1.0, max(0.0, fraction))
    return Markup(
        '<svg class="barline" viewBox="0 0 100 6" preserveAspectRatio="none" role="img"><title>{}</title>'
        '<rect class="ground" width="100" height="6" rx="3"></rect>'
        '<rect class="bar c{}" width="{:.1f}" height="6" rx="3"></rect></svg>'
    ).format(title, _colour(colour), width)


def draw_legend(series: Sequence[Curve], limit: str = "") -> Markup:
    """Legend of the curves, and of the dashed line if it has a name."""
    item = Markup(
        '<li><svg viewBox="0 0 16 8" aria-hidden="true"><rect class="bar c{}" width="16" height="8" rx="2"></rect>'
        "</svg>{}</li>"
    )
    items = Markup("").join(item.format(_colour(one.colour), one.name) for one in series)
    if limit:
        dashed = Markup(
            '<li><svg viewBox="0 0 16 8" aria-hidden="true"><path class="limit" d="M0 4H16"></path></svg>{}</li>'
        )
        items += dashed.format(limit)
    if not items:
        return Markup("")
    return Markup('<ul class="legend">{}</ul>').format(items)


@dataclass(frozen=True, slots=True)
class _Frame:
    options: PlotOptions
    across: AxisScale
    up: AxisScale

    @classmethod
    def around(cls, series: Sequence[Curve], options: PlotOptions, highest: float) -> "_Frame":
        times = [at.timestamp() for one in series for at, _ in one.points]
        start = options.start.timestamp() if options.start else min(times, default=0.0)
        end = options.end.timestamp() if options.end else max(times, default=start + 1.0)
        top = max(highest, options.limit_line or 0.0, options.axis_max or 0.0) or 1.0
        ticks = number_axis_ticks(top)
        longest = max(len(f"{tick:g}{options.unit}") for tick in ticks)
        left = max(_MARGIN_LEFT, 12 + _LETTER_WIDTH * longest)
        across = AxisScale(start, max(end, start + 1.0), left, options.width - _MARGIN_RIGHT)
        return cls(options, across, AxisScale(0.0, ticks[-1], options.height - _MARGIN_BOTTOM, _MARGIN_TOP))

    def axes(self) -> Markup:
        left, right, bottom = self.across.low_at, self.across.high_at, self.up.low_at
        rule = Markup(
            '<path class="grid" d="M{:.0f} {:.1f}H{:.0f}"></path>'
            '<text x="{:.0f}" y="{:.1f}" text-anchor="end">{}</text>'
        )
        rules = [
            rule.format(left, self.up(tick), right, left - 6, self.up(tick) + 4, f"{tick:g}{self.options.unit}")
            for tick in number_axis_ticks(self.up.high)
        ]
        mark = Markup('<text x="{:.1f}" y="{:.0f}" text-anchor="{}" data-at="{}" data-form="{}">{}</text>')
        marks = []
        for at, form, text in time_axis_ticks(self.across.low, self.across.high):
            x = self.across(at.timestamp())
            anchor = "middle" if x < right - _HALF_TICK_WIDTH else "end"  # the last label must not be cut off
            marks.append(mark.format(min(x, right), bottom + 16, anchor, f"{at:%Y-%m-%dT%H:%M:%SZ}", form, text))
        axis = Markup('<path class="axis" d="M{:.0f} {:.1f}H{:.0f}"></path>').format(left, bottom, right)
        return Markup("").join([*rules, axis, *marks])

    def curve(self, run: Sequence[tuple[datetime, float]], colour: int, filled: bool) -> Markup:
        points = [(self.across(at.timestamp()), self.up(value)) for at, value in run]
        path = _path(points)
        line = Markup('<path class="line c{}" d="{}"></path>').format(_colour(colour), path)
        if not filled:
            return line
        closed = f"{path}L{points[-1][0]:.1f} {self.up.low_at:.1f}L{points[0][0]:.1f} {self.up.low_at:.1f}Z"
        return Markup('<path class="area c{}" d="{}"></path>').format(_colour(colour), closed) + line

    def layer(self, points: Sequence[tuple[datetime, float, float]], colour: int) -> Markup:
        if not points:
            return Markup("")
        upper = [(self.across(at.timestamp()), self.up(high)) for at, _, high in points]
        lower = [(self.across(at.timestamp()), self.up(low)) for at, low, _ in reversed(points)]
        path = _path(upper) + _path(lower).replace("M", "L", 1) + "Z"
        return Markup('<path class="stacked c{}" d="{}"></path>').format(_colour(colour), path)

    def limit(self, value: float) -> Markup:
        across = self.across
        path = f"M{across.low_at:.0f} {self.up(value):.1f}H{across.high_at:.0f}"
        return Markup('<path class="limit" d="{}"></path>').format(path)


def _svg(options: PlotOptions, series: Sequence[Curve], body: Markup) -> Markup:
    description = "; ".join(_describe_curve(one, options.unit) for one in series)
    return Markup(
        '<svg class="plot" viewBox="0 0 {} {}" role="img"><title>{}</title><desc>{}</desc>{}</svg>'
    ).format(options.width, options.height, options.title, description, escape(body))


def _describe_curve(series: Curve, unit: str) -> str:
    known = [value for _, value in series.points if value is not None]
    if not known:
        return f"{series.name}: no data"
    last, peak = f"{known[-1]:.4g}{unit}", f"{max(known):.4g}{unit}"
    return f"{series.name}: {last} at the end, {sum(known) / len(known):.4g}{unit} on average, {peak} at most"


def _runs(points: Sequence[tuple[datetime, float | None]]) -> list[list[tuple[datetime, float]]]:
    """Split at gaps; a single point becomes a short stroke."""
    runs: list[list[tuple[datetime, float]]] = [[]]
    for at, value in points:
        if value is not None:
            runs[-1].append((at, value))
        elif runs[-1]:
            runs.append([])
    return [run if len(run) > 1 else run * 2 for run in runs if run]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _highest(series: Sequence[Curve]) -> float:
    return max((value for one in series for _, value in one.points if value is not None), default=0.0)


def _colour(number: int) -> int:
    return (number - 1) % _COLOURS + 1


def number_axis_ticks(top: float) -> list[float]:
    """From 0 in round steps; the last tick is at or above `top`."""
    rough = top / 4
    size = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * 0.999)
    return [round(step * count, 10) for count in range(math.ceil(top / step - 1e-9) + 1)]


def time_axis_ticks(start: float, end: float) -> list[tuple[datetime, str, str]]:
    """Round times, their format in the browser (`time` or `date`), and their text in UTC."""
    length = end - start
    step = next((step for step in _STEPS if length / step <= _MAX_TICKS), _STEPS[-1])
    while length / step > _MAX_TICKS:
        step *= 2
    first = math.ceil(start / step) * step
    form = "date" if step >= 86400 else "time"
    ticks = []
    for count in range(int((end - first) // step) + 1):
        at = datetime.fromtimestamp(first + count * step, UTC)
        ticks.append((at, form, f"{at.day} {at:%b}" if form == "date" else f"{at:%H:%M}"))
    return ticks
