"""Plots of what nodes and the cluster used over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup

from heliostat.services.cluster.stats import StatsPeriod, TimeSeries
from heliostat.web import svg_plots

PLOT_SPANS = (StatsPeriod.DAY, StatsPeriod.WEEK, StatsPeriod.MONTH)
_MIB_PER_GIB = 1024.0
_LARGE_MIB = 800 * _MIB_PER_GIB
_MOST_CURVES = 6


@dataclass(frozen=True, slots=True)
class UsagePlot:
    title: str
    svg: Markup
    legend: Markup


def draw_cluster_plots(series: Sequence[TimeSeries], span: StatsPeriod, now: datetime) -> tuple[UsagePlot, ...]:
    """What was given out and used, of what there is; and how many waited."""
    known = {one.name: one for one in series}
    draw = _Drawing(span, now)
    wanted = (
        ("GPUs given to jobs", "", _most(known.get("gpus")), (("gpus_allocated", "given to jobs"),)),
        ("GPU utilisation", "%", None, (("gpu_utilisation", "mean of all GPUs"),)),
        ("Jobs", "", None, (("running", "running"), ("pending", "pending"))),
        ("CPUs", "", _most(known.get("cpus")), (("cpus_allocated", "given to jobs"), ("cpus_used", "kept busy"))),
    )
    return tuple(
        draw.plot(title, unit, limit, [(known[name], said) for name, said in parts if name in known])
        for title, unit, limit, parts in wanted
        if any(name in known for name, _ in parts) and limit != 0
    )


def draw_node_plots(
    series: Sequence[TimeSeries], span: StatsPeriod, now: datetime, room: tuple[int, int]
) -> tuple[UsagePlot, ...]:
    """`room`: the cpus and MiB the node has."""
    known = {one.name: one for one in series}
    draw, (cpus, memory_mib) = _Drawing(span, now), room
    plots = []
    for ending, title, unit, part in (
        ("_utilisation", "GPU utilisation", "%", 1.0),
        ("_memory", "GPU memory", " GiB", 1 / _MIB_PER_GIB),
    ):
        devices = [one for one in series if one.name.startswith("gpu") and one.name.endswith(ending)]
        if devices:
            plots.append(draw.plot(title, unit, None, _few(devices, ending), part))
    if cpu := known.get("cpu"):
        plots.append(draw.plot("CPUs kept busy", "", float(cpus), [(cpu, "kept busy")]))
    if memory := known.get("memory"):
        unit, mib = (" TiB", _MIB_PER_GIB**2) if memory_mib >= _LARGE_MIB else (" GiB", _MIB_PER_GIB)
        plots.append(draw.plot("Memory", unit, memory_mib / mib, [(memory, "used")], 1 / mib))
    return tuple(plots)


@dataclass(frozen=True, slots=True)
class _Drawing:
    span: StatsPeriod
    now: datetime

    def plot(
        self,
        title: str,
        unit: str,
        limit: float | None,
        parts: Sequence[tuple[TimeSeries, str]],
        factor: float = 1.0,
    ) -> UsagePlot:
        curves = [
            svg_plots.Curve(said, _points(one, factor), colour)
            for colour, (one, said) in enumerate(parts, start=1)
        ]
        look = svg_plots.PlotOptions(
            title=title,
            unit=unit,
            width=520,
            height=180,
            axis_max=100.0 if unit == "%" else limit,
            limit_line=limit,
            is_filled=len(curves) == 1,
            start=self.now - timedelta(seconds=self.span.seconds),
            end=self.now,
        )
        return UsagePlot(
            title,
            svg_plots.draw_line_plot(curves, look),
            svg_plots.draw_legend(curves, "all there is" if limit else ""),
        )


def _points(series: TimeSeries, factor: float) -> list[tuple[datetime, float | None]]:
    step = timedelta(seconds=series.step_seconds)
    return [
        (series.start_at + step * place, None if value is None else value * factor)
        for place, value in enumerate(series.mean)
    ]


def _few(devices: Sequence[TimeSeries], ending: str) -> list[tuple[TimeSeries, str]]:
    """Each, or where these would be too many to tell apart, the mean, the least and the most."""
    if len(devices) <= _MOST_CURVES:
        return [(one, one.name.removesuffix(ending).replace("gpu", "GPU ")) for one in devices]
    columns = list(zip(*(one.mean for one in devices), strict=True))
    known = [[value for value in column if value is not None] for column in columns]
    first = devices[0]
    combined = (
        (f"mean of {len(devices)} GPUs", [sum(some) / len(some) if some else None for some in known]),
        ("the least", [min(some, default=None) for some in known]),
        ("the most", [max(some, default=None) for some in known]),
    )
    return [
        (TimeSeries(said, first.unit, first.start_at, first.step_seconds, tuple(values), tuple(values)), said)
        for said, values in combined
    ]


def _most(series: TimeSeries | None) -> float | None:
    if series is None:
        return None
    return max((value for value in series.mean if value is not None), default=None)
