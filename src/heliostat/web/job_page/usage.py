"""What a job used against what it asked for, as plots and in words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean

from markupsafe import Markup

from heliostat.models import SeriesStatistics
from heliostat.models.nodes import Device
from heliostat.services.cluster.stats import JobStats, TimeSeries
from heliostat.web import formatting, svg_plots
from heliostat.web.job_page.wait_explanation import format_sentence

_MOST_CURVES = 6
_GIB = 1024.0
_WIDTH, _HEIGHT = 460, 170


@dataclass(frozen=True, slots=True)
class JobUsagePlot:
    title: str
    summary: str  # on average 1.2, at most 3.9
    limit_label: str  # what the dashed line is; empty: there is none
    svg: Markup
    legend: Markup


@dataclass(frozen=True, slots=True)
class JobUsageView:
    assessment: str
    is_wasteful: bool
    plots: tuple[JobUsagePlot, ...]


def build_usage_view(stats: JobStats, devices: Sequence[Device]) -> JobUsageView:
    """`devices` are those it has or had, as far as they are known."""
    by_name = {series.name: series for series in stats.series}
    found = [
        _of_devices("GPU utilisation", by_name, "utilisation", _Measure("%", 1.0, top=100.0)),
        _of_devices("GPU memory in GiB", by_name, "memory", _device_memory(devices)),
        _of_one("CPU cores", by_name.get("cpu"), stats.summary.cpus, _cpus(stats)),
        _of_one("Memory in GiB", by_name.get("memory"), stats.summary.memory_mib, _memory(stats)),
    ]
    plots = tuple(plot for plot in found if plot is not None)
    return JobUsageView(format_sentence(stats.efficiency.text), stats.efficiency.wasteful, plots)


@dataclass(frozen=True, slots=True)
class _Measure:
    unit: str
    divisor: float
    top: float | None = None
    limit: float | None = None
    asked: str = ""

    def words(self, value: float | None) -> str:
        if value is None or self.unit == "GiB":
            return formatting.format_size(value)
        return f"{value:.0f} %" if self.unit == "%" else formatting.format_number(round(value, 2))


def _cpus(stats: JobStats) -> _Measure:
    return _Measure("", 1.0, limit=float(stats.requested.cpus), asked=f"asked for {stats.requested.cpus}")


def _memory(stats: JobStats) -> _Measure:
    asked = stats.requested.memory_mib
    return _Measure("GiB", _GIB, limit=asked / _GIB, asked=f"asked for {formatting.format_size(asked)}")


def _device_memory(devices: Sequence[Device]) -> _Measure:
    if not devices:
        return _Measure("GiB", _GIB)
    most = max(device.memory_mib for device in devices)
    return _Measure("GiB", _GIB, limit=most / _GIB, asked=f"each has {formatting.format_size(most)}")


def _of_one(
    title: str, series: TimeSeries | None, figure: SeriesStatistics, measure: _Measure
) -> JobUsagePlot | None:
    if series is None or not any(value is not None for value in series.mean):
        return None
    facts = f"on average {measure.words(figure.mean)}, at most {measure.words(figure.peak)}"
    curves = [svg_plots.Curve(title, _points(series, measure), 1)]
    return JobUsagePlot(title, facts, measure.asked, _drawn(title, curves, measure), Markup(""))


def _of_devices(
    title: str, by_name: Mapping[str, TimeSeries], what: str, measure: _Measure
) -> JobUsagePlot | None:
    found = [series for name, series in by_name.items() if name.startswith("gpu") and name.endswith(f"_{what}")]
    known = [value for series in found for value in series.mean if value is not None]
    if not known:
        return None
    peaks = [value for series in found for value in series.max if value is not None]
    facts = f"on average {measure.words(sum(known) / len(known))}, at most {measure.words(max(peaks or known))}"
    curves = _few(found, measure) if len(found) <= _MOST_CURVES else _many(found, measure)
    legend = svg_plots.draw_legend(curves) if len(curves) > 1 else Markup("")
    return JobUsagePlot(title, facts, measure.asked, _drawn(title, curves, measure), legend)


def _few(found: Sequence[TimeSeries], measure: _Measure) -> list[svg_plots.Curve]:
    return [
        svg_plots.Curve(f"GPU {place}", _points(series, measure), place + 1) for place, series in enumerate(found)
    ]


def _many(found: Sequence[TimeSeries], measure: _Measure) -> list[svg_plots.Curve]:
    """Of a crowd: the busiest, the mean and the idlest at each time."""
    first = found[0]
    columns = [[one for one in column if one is not None] for column in zip(*(s.mean for s in found), strict=True)]
    picks: tuple[tuple[str, Callable[[list[float]], float]], ...] = (
        ("most", max),
        ("mean", fmean),
        ("least", min),
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


def _drawn(title: str, curves: Sequence[svg_plots.Curve], measure: _Measure) -> Markup:
    unit = "%" if measure.unit == "%" else ""
    look = svg_plots.PlotOptions(
        title, unit, _WIDTH, _HEIGHT, measure.top, measure.limit, is_filled=len(curves) == 1
    )
    return svg_plots.draw_line_plot(curves, look)
