"""Plots of cluster and node usage over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup

from heliostat.models import Node
from heliostat.services.cluster.stats import StatsPeriod, TimeSeries
from heliostat.web import svg_plots

PLOT_SPANS = (StatsPeriod.DAY, StatsPeriod.WEEK, StatsPeriod.MONTH)
_MIB_PER_GIB = 1024.0
_LARGE_MIB = 800 * _MIB_PER_GIB
_MAX_CURVES = 6


@dataclass(frozen=True, slots=True)
class UsagePlot:
    title: str
    svg: Markup
    legend: Markup


def draw_cluster_plots(series: Sequence[TimeSeries], span: StatsPeriod, now: datetime) -> tuple[UsagePlot, ...]:
    """Allocated and used resources, and the number of running and pending jobs."""
    known = {one.name: one for one in series}
    draw = _PlotBuilder(span, now)
    plots = (
        ("GPUs allocated", "", _maximum(known.get("gpus")), (("gpus_allocated", "allocated"),)),
        ("GPU utilisation", "%", None, (("gpu_utilisation", "mean of all GPUs"),)),
        ("Jobs", "", None, (("running", "running"), ("pending", "pending"))),
        ("CPUs", "", _maximum(known.get("cpus")), (("cpus_allocated", "allocated"), ("cpus_used", "used"))),
    )
    return tuple(
        draw.plot(title, unit, limit, [(known[name], label) for name, label in curves if name in known])
        for title, unit, limit, curves in plots
        if any(name in known for name, _ in curves) and limit != 0
    )


def draw_node_plots(
    series: Sequence[TimeSeries], span: StatsPeriod, now: datetime, node: Node
) -> tuple[UsagePlot, ...]:
    known = {one.name: one for one in series}
    draw, memory_mib = _PlotBuilder(span, now), node.memory_mib
    names = {f"gpu{place}": f"GPU {device.number}" for place, device in enumerate(node.devices)}
    plots = []
    for suffix, title, unit, factor in (
        ("_utilisation", "GPU utilisation", "%", 1.0),
        ("_memory", "GPU memory", " GiB", 1 / _MIB_PER_GIB),
    ):
        devices = [
            (one, names.get(name := one.name.removesuffix(suffix), name))
            for one in series
            if one.name.startswith("gpu") and one.name.endswith(suffix) and _maximum(one) is not None
        ]
        if devices:
            plots.append(draw.plot(title, unit, None, _device_curves(devices), factor))
    if cpu := known.get("cpu"):
        plots.append(draw.plot("CPUs used", "", float(node.cpus), [(cpu, "used")]))
    if memory := known.get("memory"):
        unit, mib = (" TiB", _MIB_PER_GIB**2) if memory_mib >= _LARGE_MIB else (" GiB", _MIB_PER_GIB)
        plots.append(draw.plot("Memory", unit, memory_mib / mib, [(memory, "used")], 1 / mib))
    return tuple(plots)


@dataclass(frozen=True, slots=True)
class _PlotBuilder:
    span: StatsPeriod
    now: datetime

    def plot(
        self,
        title: str,
        unit: str,
        limit: float | None,
        curves_data: Sequence[tuple[TimeSeries, str]],
        factor: float = 1.0,
    ) -> UsagePlot:
        curves = [
            svg_plots.Curve(label, _points(one, factor), colour)
            for colour, (one, label) in enumerate(curves_data, start=1)
        ]
        options = svg_plots.PlotOptions(
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
            svg_plots.draw_line_plot(curves, options),
            svg_plots.draw_legend(curves, "capacity" if limit else ""),
        )


def _points(series: TimeSeries, factor: float) -> list[tuple[datetime, float | None]]:
    step = timedelta(seconds=series.step_seconds)
    return [
        (series.start_at + step * place, None if value is None else value * factor)
        for place, value in enumerate(series.mean)
    ]


def _device_curves(devices: list[tuple[TimeSeries, str]]) -> list[tuple[TimeSeries, str]]:
    """One curve per device, or with many devices their mean, minimum and maximum."""
    if len(devices) <= _MAX_CURVES:
        return devices
    columns = list(zip(*(one.mean for one, _ in devices), strict=True))
    known = [[value for value in column if value is not None] for column in columns]
    first = devices[0][0]
    combined = (
        (f"mean of {len(devices)} GPUs", [sum(some) / len(some) if some else None for some in known]),
        ("minimum", [min(some, default=None) for some in known]),
        ("maximum", [max(some, default=None) for some in known]),
    )
    return [
        (TimeSeries(label, first.unit, first.start_at, first.step_seconds, tuple(values), tuple(values)), label)
        for label, values in combined
    ]


def _maximum(series: TimeSeries | None) -> float | None:
    if series is None:
        return None
    return max((value for value in series.mean if value is not None), default=None)
