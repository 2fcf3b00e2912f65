"""Usage section of the job page: plots of used and requested resources, and an assessment."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest
from statistics import fmean
from urllib.parse import urlencode

from markupsafe import Markup

from heliostat.models import SeriesStatistics
from heliostat.services.cluster.job_devices import JobDevices
from heliostat.services.cluster.stats import JobStats, TimeSeries
from heliostat.services.energy import EnergyEstimate
from heliostat.web import formatting, svg_plots
from heliostat.web.job_page.wait_explanation import format_sentence

_MAX_CURVES = 6
_GIB = 1024.0
_WIDTH, _HEIGHT = 460, 170


@dataclass(frozen=True, slots=True)
class JobUsagePlot:
    title: str
    summary: str  # on average 1.2, at most 3.9
    limit_label: str  # label of the dashed line; empty: no line
    svg: Markup
    legend: Markup


@dataclass(frozen=True, slots=True)
class JobUsageView:
    assessment: str
    is_wasteful: bool
    change: str  # options of `helio run` for the next run; empty: none
    verdict: str  # ends the sentence that begins with the change
    change_url: str  # the form with this change
    energy: str  # empty: not known
    command: str  # submits the job again with this change
    plots: tuple[JobUsagePlot, ...]


def build_usage_view(stats: JobStats) -> JobUsageView:
    by_name, devices = {series.name: series for series in stats.series}, stats.devices
    found = [
        _plot_devices("GPU utilisation", by_name, devices.names, _Measure("%", 1.0, top=100.0)),
        _plot_devices("GPU memory in GiB", by_name, devices.names, _device_memory(devices)),
        _plot_series("CPUs", by_name.get("cpu"), stats.summary.cpus, _cpus(stats)),
        _plot_series("Memory in GiB", by_name.get("memory"), stats.summary.memory_mib, _memory(stats)),
    ]
    plots = tuple(plot for plot in found if plot is not None)
    report = stats.efficiency
    return JobUsageView(
        format_sentence(report.text),
        report.wasteful,
        report.options,
        f"{report.verdict}.",
        f"/jobs/new?{urlencode({'from': stats.job_id, **report.change})}",
        _describe_energy(stats.energy),
        report.rerun_command(stats.job_id),
        plots,
    )


def _describe_energy(energy: EnergyEstimate | None) -> str:
    if energy is None:
        return ""
    co2 = "" if energy.co2_kg is None else f" and {energy.co2_kg:.2f} kg of CO2"
    if energy.source == "measured":
        return f"Its GPUs used {energy.kwh:.2f} kWh{co2}, measured by their energy counters."
    return f"Its GPUs used about {energy.kwh:.2f} kWh{co2}, estimated from samples of their power."


@dataclass(frozen=True, slots=True)
class _Measure:
    unit: str
    divisor: float
    top: float | None = None
    limit: float | None = None
    limit_label: str = ""

    def format(self, value: float | None) -> str:
        if value is None or self.unit == "GiB":
            return formatting.format_size(value)
        return (
            formatting.format_percent(value / 100)
            if self.unit == "%"
            else formatting.format_number(round(value, 2))
        )


def _cpus(stats: JobStats) -> _Measure:
    return _Measure("", 1.0, limit=float(stats.requested.cpus), limit_label=f"requested: {stats.requested.cpus}")


def _memory(stats: JobStats) -> _Measure:
    requested = stats.requested.memory_mib
    return _Measure(
        "GiB", _GIB, limit=requested / _GIB, limit_label=f"requested: {formatting.format_size(requested)}"
    )


def _device_memory(devices: JobDevices) -> _Measure:
    capacity = max((mib for mib in devices.memory_mib if mib is not None), default=None)
    if capacity is None:
        return _Measure("GiB", _GIB)
    return _Measure(
        "GiB", _GIB, limit=capacity / _GIB, limit_label=f"capacity per GPU: {formatting.format_size(capacity)}"
    )


def _plot_series(
    title: str, series: TimeSeries | None, statistics: SeriesStatistics, measure: _Measure
) -> JobUsagePlot | None:
    if series is None or not _is_curve(series):
        return None
    facts = f"on average {measure.format(statistics.mean)}, at most {measure.format(statistics.peak)}"
    curves = [svg_plots.Curve(title, _points(series, measure), 1)]
    legend = svg_plots.draw_legend([], measure.limit_label)
    return JobUsagePlot(title, facts, measure.limit_label, _draw(title, curves, measure), legend)


def _is_curve(series: TimeSeries) -> bool:
    """A single sample would be an empty frame."""
    return sum(value is not None for value in series.mean) > 1


def _plot_devices(
    title: str, by_name: Mapping[str, TimeSeries], names: Sequence[str], measure: _Measure
) -> JobUsagePlot | None:
    what = "utilisation" if measure.unit == "%" else "memory"
    found = [series for name, series in by_name.items() if name.startswith("gpu") and name.endswith(f"_{what}")]
    if not any(map(_is_curve, found)):
        return None
    known = [value for series in found for value in series.mean if value is not None]
    peaks = [value for series in found for value in series.max if value is not None]
    facts = f"on average {measure.format(sum(known) / len(known))}, at most {measure.format(max(peaks or known))}"
    curves = (
        _device_curves(found, names, measure) if len(found) <= _MAX_CURVES else _summary_curves(found, measure)
    )
    legend = svg_plots.draw_legend(curves if len(curves) > 1 else [], measure.limit_label)
    return JobUsagePlot(title, facts, measure.limit_label, _draw(title, curves, measure), legend)


def _device_curves(found: Sequence[TimeSeries], names: Sequence[str], measure: _Measure) -> list[svg_plots.Curve]:
    labels = zip_longest(names[: len(found)], (f"GPU {place}" for place in range(len(found))))
    return [
        svg_plots.Curve(name or fallback, _points(series, measure), place)
        for place, (series, (name, fallback)) in enumerate(zip(found, labels, strict=True), 1)
    ]


def _summary_curves(found: Sequence[TimeSeries], measure: _Measure) -> list[svg_plots.Curve]:
    """With many devices: maximum, mean and minimum over time."""
    first = found[0]
    columns = [
        [value for value in column if value is not None] for column in zip(*(s.mean for s in found), strict=True)
    ]
    picks: tuple[tuple[str, Callable[[list[float]], float]], ...] = (
        ("maximum", max),
        ("mean", fmean),
        ("minimum", min),
    )
    curves = []
    for colour, (name, pick) in enumerate(picks, 1):
        values = [pick(column) / measure.divisor if column else None for column in columns]
        times = (first.start_at + timedelta(seconds=first.step_seconds * place) for place in range(len(values)))
        curves.append(svg_plots.Curve(name, list(zip(times, values, strict=True)), colour))
    return curves


def _points(series: TimeSeries, measure: _Measure) -> list[tuple[datetime, float | None]]:
    step = timedelta(seconds=series.step_seconds)
    return [
        (series.start_at + step * place, None if value is None else value / measure.divisor)
        for place, value in enumerate(series.mean)
    ]


def _draw(title: str, curves: Sequence[svg_plots.Curve], measure: _Measure) -> Markup:
    unit = "%" if measure.unit == "%" else ""
    options = svg_plots.PlotOptions(
        title, unit, _WIDTH, _HEIGHT, measure.top, measure.limit, is_filled=len(curves) == 1
    )
    return svg_plots.draw_line_plot(curves, options)
