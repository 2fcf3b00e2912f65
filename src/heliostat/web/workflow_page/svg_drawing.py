"""SVG drawing of a workflow: dependency graph and Gantt chart, coloured by CSS classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from heliostat.web.svg_plots import AxisScale, time_axis_ticks
from heliostat.web.workflow_page.graph_layout import GraphLayout, StepBox

_NAME_LENGTH = 20  # in a box
_ROW, _LABELS, _CHART, _BELOW = 24, 190, 760, 24
_MIN_BAR_WIDTH = 2.0


@dataclass(frozen=True, slots=True)
class BoxLabel:
    """Texts and state of a box."""

    title: str
    subtitle: str
    state: str
    href: str
    done_fraction: float = 0.0  # of several jobs


@dataclass(frozen=True, slots=True)
class GanttBar:
    """A row of the chart: one job, or all of a step."""

    title: str
    state: str
    href: str
    started_at: datetime | None
    ended_at: datetime | None  # None: still running
    description: str  # duration and counts


def draw_graph(drawing: GraphLayout, labels: Sequence[BoxLabel], title: str) -> Markup:
    """One label for each box."""
    lines = Markup("").join(_line(drawing.boxes[one], drawing.boxes[other]) for one, other in drawing.edges)
    boxes = Markup("").join(_box(box, label) for box, label in zip(drawing.boxes, labels, strict=True))
    return Markup(
        '<svg class="graph" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="group" aria-label="{t}">'
        "{}{}</svg>"
    ).format(lines, boxes, w=drawing.width, h=drawing.height, t=title)


def draw_gantt(bars: Sequence[GanttBar], now: datetime, title: str) -> Markup:
    """One row per bar; jobs that have not started have an empty row."""
    times = [bar.started_at for bar in bars if bar.started_at] or [now]
    start = min(times).timestamp()
    ends = [(bar.ended_at or now).timestamp() for bar in bars if bar.started_at]
    end = max([*ends, start + 1.0])
    across = AxisScale(start, end, float(_LABELS), float(_LABELS + _CHART))
    height, width = len(bars) * _ROW + _BELOW, _LABELS + _CHART + 10
    rows = Markup("").join(_bar(bar, place * _ROW, across, now) for place, bar in enumerate(bars))
    return Markup('<svg class="gantt plot" viewBox="0 0 {w} {h}" role="group" aria-label="{t}">{}{}</svg>').format(
        _times(across, start, end, height) if ends else "", rows, w=width, h=height, t=title
    )


def truncate(text: str, most: int = _NAME_LENGTH) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _line(one: StepBox, other: StepBox) -> Markup:
    x1, y1 = one.x + one.width, one.y + one.height // 2
    x2, y2 = other.x, other.y + other.height // 2
    bend = max(24, (x2 - x1) // 2)
    path = f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"
    return Markup('<path class="edge" d="{}"></path>').format(path)


def _box(box: StepBox, label: BoxLabel) -> Markup:
    done = Markup("")
    if label.done_fraction > 0:
        done = Markup('<rect class="done" x="{}" y="{}" width="{:.1f}" height="4"></rect>').format(
            box.x, box.y + box.height - 4, box.width * min(1.0, label.done_fraction)
        )
    return Markup(
        '<a href="{href}" class="box step-{state}"><title>{title}: {below}</title>'
        '<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="8"></rect>{done}'
        '<text class="name" x="{tx}" y="{ty}">{name}</text>'
        '<text class="about" x="{tx}" y="{ay}">{about}</text></a>'
    ).format(
        href=label.href,
        state=label.state,
        title=label.title,
        below=label.subtitle,
        x=box.x,
        y=box.y,
        w=box.width,
        h=box.height,
        done=done,
        tx=box.x + 12,
        ty=box.y + 22,
        ay=box.y + 39,
        name=truncate(label.title),
        about=truncate(label.subtitle, _NAME_LENGTH + 3),
    )


def _bar(bar: GanttBar, top: int, across: AxisScale, now: datetime) -> Markup:
    drawn = Markup("")
    if bar.started_at is not None:
        left = across(bar.started_at.timestamp())
        right = across((bar.ended_at or now).timestamp())
        drawn = Markup(
            '<rect class="run step-{}" x="{:.1f}" y="{}" width="{:.1f}" height="14" rx="3"></rect>'
        ).format(bar.state, min(left, across.high_at - _MIN_BAR_WIDTH), top + 5, max(_MIN_BAR_WIDTH, right - left))
    return Markup(
        '<a href="{}"><title>{}: {}</title><rect class="row" x="0" y="{}" width="{}" height="{}"></rect>'
        '<text x="4" y="{}">{}</text>{}</a>'
    ).format(
        bar.href,
        bar.title,
        bar.description,
        top,
        _LABELS + _CHART + 10,
        _ROW,
        top + 16,
        truncate(bar.title, 26),
        drawn,
    )


def _times(across: AxisScale, start: float, end: float, height: int) -> Markup:
    """Grid lines at round times; for a short run only its duration."""
    ticks = time_axis_ticks(start, end) if end - start >= 120 else []
    lines = [
        Markup('<path class="grid" d="M{x:.1f} 0V{y}"></path><text x="{x:.1f}" y="{ty}">{}</text>').format(
            text, x=across(at.timestamp()), y=height - _BELOW, ty=height - 8
        )
        for at, _, text in ticks
    ]
    if not lines:
        words = Markup('<text x="{}" y="{}">{}</text>')
        lines = [words.format(_LABELS, height - 8, f"{end - start:.0f} s in total")]
    return Markup("").join(lines)
