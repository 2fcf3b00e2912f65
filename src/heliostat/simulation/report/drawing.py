"""SVG by hand: lines over two axes, and bars. Colours are classes, which the page's style gives."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from heliostat.simulation.report.axes import Axis
from heliostat.simulation.report.curves import Points

WIDTH, HEIGHT = 760, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 48
_BAR, _GAP = 11, 9


def lines(label: str, x: Axis, y: Axis, series: Mapping[str, Points]) -> str:
    """One line for each series, in the order of the legend."""
    body = [*_grid(x, y, HEIGHT), *(_line(nth, x, y, points) for nth, points in enumerate(series.values()))]
    return _svg(label, HEIGHT, body)


def bars(label: str, x: Axis, groups: Sequence[str], series: Mapping[str, Sequence[float]]) -> str:
    """Groups from top to bottom, in each a bar for every series."""
    tall = len(series) * _BAR + _GAP
    height = _TOP + _BOTTOM + tall * len(groups)
    left = 150
    body = list(_vertical(x, height, left))
    for row, group in enumerate(groups):
        top = _TOP + row * tall + _GAP / 2
        body.append(_text(left - 8, top + len(series) * _BAR / 2 + 4, _short(group), "end"))
        for nth, values in enumerate(series.values()):
            width = max(1.0, x.place(values[row]) * (WIDTH - left - _RIGHT))
            said = f"<title>{escape(group)}, {escape(list(series)[nth])}: {values[row]:,.2f}</title>"
            place = f'x="{left}" y="{top + nth * _BAR:.1f}" width="{width:.1f}" height="{_BAR - 1}"'
            body.append(f'<rect class="s{nth}" {place}>{said}</rect>')
    return _svg(label, height, body)


def _svg(label: str, height: float, body: Iterable[str]) -> str:
    view = f'viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {view}>{"".join(body)}</svg>'


def _line(nth: int, x: Axis, y: Axis, points: Points) -> str:
    places = " ".join(f"{_across(x, a, _LEFT):.1f},{_up(y, b):.1f}" for a, b in points)
    return f'<polyline class="line s{nth}" points="{places}"/>'


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
    return left + axis.place(value) * (WIDTH - left - _RIGHT)


def _up(axis: Axis, value: float) -> float:
    return HEIGHT - _BOTTOM - axis.place(value) * (HEIGHT - _TOP - _BOTTOM)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _short(text: str) -> str:
    return text if len(text) <= 20 else text[:19] + "…"
