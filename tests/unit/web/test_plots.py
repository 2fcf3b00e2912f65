from dataclasses import replace
from datetime import UTC, datetime

import pytest

from heliostat.models import AttemptRecord, Device, DeviceStatistics, JobState, SeriesStatistics, UsageSummary
from heliostat.services.cluster.job_devices import JobDevices
from heliostat.services.cluster.stats import EfficiencyReport, JobStats, RequestedResources, TimeSeries
from heliostat.web.job_page.usage import build_usage_view

START = datetime(2026, 3, 1, tzinfo=UTC)
DEVICES = {uuid: Device(uuid, int(uuid[1:]), "A100", "NVIDIA A100", 40960) for uuid in ("u1", "u4", "u5")}


def _attempt(number: int, node: str, *devices: str) -> AttemptRecord:
    return AttemptRecord(1, number, node, devices, JobState.RUNNING, START, START)


UNNAMED = JobDevices()
FOURTH_AND_FIFTH = JobDevices.of_attempts([_attempt(1, "a", "u4", "u5")], DEVICES)


def _series(name: str, unit: str, *values: float | None) -> TimeSeries:
    return TimeSeries(name, unit, START, 10, values, values)


def _stats(gpus: int, devices: JobDevices = UNNAMED) -> JobStats:
    series = [_series("cpu", "cores", 1.0, None, 3.0), _series("memory", "MiB", 512.0, 1024.0, 1024.0)]
    for place in range(gpus):
        series.append(_series(f"gpu{place}_utilisation", "%", 50.0, 90.0, None))
        series.append(_series(f"gpu{place}_memory", "MiB", 20480.0, 20480.0, 20480.0))
    figures = UsageSummary(
        30.0,
        SeriesStatistics(2.0, 3.0, 3.0),
        SeriesStatistics(853.0, 1024.0, 1024.0),
        (DeviceStatistics(),) * gpus,
    )
    return JobStats(
        1,
        RequestedResources(8, 16384, float(gpus)),
        tuple(series),
        30.0,
        figures,
        EfficiencyReport(("used 1 of 4 GPUs",), judged=True, wasteful=True, change={"gpus": 1, "memory": "2G"}),
        devices,
    )


def test_what_was_used_is_drawn_against_what_was_asked_for() -> None:
    told = build_usage_view(_stats(2, FOURTH_AND_FIFTH))
    assert [plot.title for plot in told.plots] == [
        "GPU utilisation",
        "GPU memory in GiB",
        "CPUs",
        "Memory in GiB",
    ]
    assert [plot.limit_label for plot in told.plots] == [
        "",
        "capacity per GPU: 40 GiB",
        "requested: 8",
        "requested: 16 GiB",
    ]
    assert told.plots[0].summary == "on average 70%, at most 90%"
    assert told.plots[1].summary == "on average 20 GiB, at most 20 GiB"
    assert told.plots[2].summary == "on average 2, at most 3"
    assert told.plots[3].summary == "on average 853 MiB, at most 1 GiB"
    assert 'class="limit"' in told.plots[2].svg
    assert (told.assessment, told.is_wasteful) == ("Used 1 of 4 GPUs.", True)
    assert (told.change, told.verdict) == ("--gpus 1 --memory 2G", "would have been enough.")
    assert told.change_url == "/jobs/new?from=1&gpus=1&memory=2G"
    assert told.command == "helio rerun 1 --set gpus=1 --set memory=2G"


@pytest.mark.parametrize(("gpus", "names"), [(2, ["GPU 0", "GPU 1"]), (16, ["maximum", "mean", "minimum"])])
def test_many_gpus_are_drawn_as_few_curves(gpus: int, names: list[str]) -> None:
    plot = build_usage_view(_stats(gpus)).plots[0]
    assert all(name in plot.legend for name in names)
    assert plot.svg.count('class="line') == len(names)


def test_nothing_known_is_no_plot() -> None:
    report = EfficiencyReport(("has not run yet",))
    nothing = JobStats(1, RequestedResources(1, 1024, 0), (), 0.0, UsageSummary(), report, UNNAMED)
    assert build_usage_view(nothing).plots == ()


def test_the_curves_have_the_names_of_the_gpus() -> None:
    legend = build_usage_view(_stats(2, FOURTH_AND_FIFTH)).plots[0].legend
    assert ["GPU 4<" in legend, "GPU 5<" in legend, "GPU 0" in legend] == [True, True, False]
    again = JobDevices.of_attempts([_attempt(1, "a", "u4"), _attempt(2, "a", "u1")], DEVICES)
    assert again.names == ("GPU 4, GPU 1",)
    assert JobDevices.of_attempts([_attempt(1, "a", "u4"), _attempt(2, "b", "u4")], DEVICES).names == (
        "a GPU 4, b GPU 4",
    )


def test_a_single_sample_has_no_plot() -> None:
    stats = _stats(1)
    once = tuple(replace(series, mean=(None, 1.0, None)) for series in stats.series)
    assert build_usage_view(replace(stats, series=once)).plots == ()
