"""The offered load, and workloads scaled to one."""

from datetime import timedelta

import pytest

from heliostat.errors import Invalid
from heliostat.simulation.cluster import parse_cluster
from heliostat.simulation.offered_load import compute_offered_load, scale_to_load
from heliostat.simulation.traces.trace import TraceJob
from heliostat.simulation.workload import build_workloads
from unit.simulation.reference_planners import workload_of


def test_the_offered_load_is_what_jobs_request_of_what_the_cluster_has_while_they_arrive() -> None:
    cluster, workload = workload_of("2x8", (0, 60, 4), (60, 30, 16), (100, 10, 8))
    assert compute_offered_load(workload, cluster) == pytest.approx((240 + 480 + 80) / (16 * 100))


def test_a_workload_scaled_to_a_load_has_it_and_keeps_jobs_and_their_order() -> None:
    cluster, workload = workload_of("2x8", (50, 60, 4), (110, 30, 16), (150, 10, 8))
    (scaled,) = scale_to_load([workload], cluster, 2.0)
    assert compute_offered_load(scaled, cluster) == pytest.approx(2.0)
    assert scaled.submitted_seconds == (0.0, 15.0, 25.0)
    origin = scaled.jobs[0].submitted_at
    assert origin == workload.jobs[0].submitted_at
    assert [job.submitted_at - origin for job in scaled.jobs] == [timedelta(seconds=n) for n in (0, 15, 25)]
    assert scaled.run_seconds == workload.run_seconds
    assert scaled.gap_factor == pytest.approx(0.25)


def test_all_clusters_get_the_jobs_at_the_times_that_load_the_first() -> None:
    clusters = [parse_cluster("1x8"), parse_cluster("2x8")]
    workloads = build_workloads([TraceJob(0, 50, gpus=8), TraceJob(100, 50, gpus=8)], clusters)
    scaled = scale_to_load(workloads, clusters[0], 0.5)
    loads = [compute_offered_load(*pair) for pair in zip(scaled, clusters, strict=True)]
    assert loads == pytest.approx([0.5, 0.25])


@pytest.mark.parametrize(
    ("jobs", "load", "says"),
    [
        ([(0, 60, 4)], 0.9, "all were submitted at once, or they request no gpus"),
        ([(0, 60, 0), (10, 60, 0)], 0.9, "all were submitted at once, or they request no gpus"),
        ([(0, 60, 4), (10, 60, 0)], 1e-300, "more than a thousand years"),
    ],
)
def test_a_load_that_cannot_be_reached_is_refused(
    jobs: list[tuple[float, float, float]], load: float, says: str
) -> None:
    cluster, workload = workload_of("2x8", *jobs)
    with pytest.raises(Invalid) as caught:
        scale_to_load([workload], cluster, load)
    assert says in caught.value.message
    assert caught.value.hint
