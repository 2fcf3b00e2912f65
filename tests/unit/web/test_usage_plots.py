from datetime import UTC, datetime, timedelta

from heliostat.models import Device, Node
from heliostat.services.cluster.stats import StatsPeriod, TimeSeries
from heliostat.web.usage_plots import draw_cluster_plots, draw_node_plots

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


def series(name: str, *values: float | None, unit: str = "") -> TimeSeries:
    return TimeSeries(name, unit, NOW - timedelta(hours=len(values)), 3600, values, values)


def test_the_cluster_is_drawn_against_what_there_is() -> None:
    known = [series("gpus", 100, 100), series("gpus_allocated", 40, None), series("gpu_utilisation", 30, 35)]
    plots = draw_cluster_plots(known, StatsPeriod.DAY, NOW)
    assert [plot.title for plot in plots] == ["GPUs allocated", "GPU utilisation"]
    assert 'class="limit"' in plots[0].svg


def test_nothing_known_draws_nothing() -> None:
    assert draw_cluster_plots((), StatsPeriod.MONTH, NOW) == ()
    assert draw_node_plots((), StatsPeriod.MONTH, NOW, Node("a", 8, 1024)) == ()


def test_a_cluster_without_gpus_has_no_plot_of_them() -> None:
    known = [
        series("gpus", 0, 0),
        series("gpus_allocated", 0, 0),
        series("cpus", 8, 8),
        series("cpus_allocated", 1, 2),
    ]
    assert [plot.title for plot in draw_cluster_plots(known, StatsPeriod.DAY, NOW)] == ["CPUs"]


def test_few_devices_are_drawn_each_and_many_by_mean_least_and_most() -> None:
    few = draw_node_plots(
        [series(f"gpu{at}_utilisation", 10.0 * at) for at in range(4)], StatsPeriod.DAY, NOW, Node("a", 8, 1024)
    )
    assert few[0].svg.count('class="line') == 4
    many = [series(f"gpu{at}_utilisation", 10.0 * at, None) for at in range(8)]
    (plot,) = draw_node_plots(many, StatsPeriod.DAY, NOW, Node("a", 8, 1024))
    assert plot.svg.count('class="line') == 3
    assert "mean of 8 GPUs: 35% at the end" in plot.svg


def test_mig_slices_are_named_as_nvidia_smi_shows_them_and_have_no_utilisation() -> None:
    devices = tuple(
        Device(f"MIG-{at}", 2, "A100-1g.10gb", "A100 MIG", 9728, slice_index=at, card_uuid="GPU-2")
        for at in (0, 4)
    )
    known = [series(f"gpu{at}_utilisation", None) for at in (0, 1)]
    known += [series(f"gpu{at}_memory", 512.0) for at in (0, 1)]
    (plot,) = draw_node_plots(known, StatsPeriod.DAY, NOW, Node("a", 8, 1024, devices))
    assert plot.title == "GPU memory"
    assert "GPU 2:4: 0.5 GiB at the end" in plot.svg


def test_much_memory_is_drawn_in_tebibytes() -> None:
    (plot,) = draw_node_plots([series("memory", 512 * 1024.0)], StatsPeriod.DAY, NOW, Node("a", 8, 1024 * 1024))
    assert "used: 0.5 TiB at the end" in plot.svg
