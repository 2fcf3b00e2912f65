"""Metrics compared with values calculated by hand."""

import numpy as np
import pytest

from heliostat.simulation.metrics import (
    bounded_slowdown,
    compute_distribution,
    compute_fairness,
    compute_job_times,
    compute_metrics,
    to_attempt_table,
)
from heliostat.simulation.replay import AttemptSpan
from heliostat.simulation.report.curves import (
    cumulative_distribution,
    queue_length_over_time,
    utilisation_over_time,
)
from unit.simulation.reference_planners import workload_of


def test_metrics_of_a_small_replay_match_a_manual_calculation() -> None:
    cluster, workload = workload_of("1x4", (0, 100, 4), (50, 20, 2), (80, 5, 2))
    spans = to_attempt_table([AttemptSpan(0, 0, 100, 0), AttemptSpan(1, 100, 120, 0), AttemptSpan(2, 100, 105, 0)])
    figures = compute_metrics(workload, cluster, spans)
    assert (figures.jobs, figures.unstarted, figures.preemptions) == (3, 0, 0)
    assert figures.wait.mean == pytest.approx((0 + 50 + 20) / 3)
    assert (figures.wait.p50, figures.wait.max) == (20, 50)
    assert figures.completion.mean == pytest.approx((100 + 70 + 25) / 3)
    assert figures.slowdown.mean == pytest.approx((1 + 70 / 20 + 25 / 10) / 3)  # 5 s count as 10
    assert figures.makespan_seconds == 120
    assert figures.utilisation == pytest.approx((400 + 40 + 10) / (4 * 120))
    assert figures.utilisation_while_arriving == pytest.approx(1.0)


def test_lost_work_and_waits_after_preemption_are_counted() -> None:
    cluster, workload = workload_of("1x4", (0, 100, 2))
    spans = to_attempt_table([AttemptSpan(0, 10, 40, 30), AttemptSpan(0, 50, 150, 0)])
    figures = compute_metrics(workload, cluster, spans)
    assert figures.wait.mean == 20
    assert figures.completion.mean == 150
    assert figures.preemptions == 1
    assert figures.wasted_gpu_hours == pytest.approx(2 * 30 / 3600)
    assert figures.slowdown.mean == pytest.approx(1.5)


def test_jobs_that_never_started_are_counted_and_not_averaged() -> None:
    cluster, workload = workload_of("1x4", (0, 10, 1), (0, 10, 1))
    figures = compute_metrics(workload, cluster, to_attempt_table([AttemptSpan(0, 0, 10, 0)]))
    assert (figures.jobs, figures.unstarted, figures.wait.mean) == (1, 1, 0)


def test_a_replay_without_runs_gives_zeros() -> None:
    cluster, workload = workload_of("1x4", (0, 10, 1))
    figures = compute_metrics(workload, cluster, to_attempt_table([]))
    assert (figures.unstarted, figures.wait.mean, figures.utilisation, figures.projects.jain) == (1, 0, 0, 1)


def test_slowdown_is_at_least_one_and_short_runs_count_as_ten_seconds() -> None:
    found = bounded_slowdown(np.array([5.0, 20.0, 100.0]), np.array([5.0, 1.0, 50.0]))
    assert found.tolist() == [1.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("slowdowns", "jain"),
    [([2, 2, 2, 2], 1.0), ([1, 3, 3, 1], 1.0), ([1, 1, 3, 3], 0.8)],
)
def test_fairness_compares_the_means_of_groups(slowdowns: list[float], jain: float) -> None:
    found = compute_fairness(["a", "a", "b", "b"], np.array(slowdowns, dtype=float))
    assert found.jain == pytest.approx(jain)
    assert found.slowdowns == {"a": sum(slowdowns[:2]) / 2, "b": sum(slowdowns[2:]) / 2}


def test_the_project_with_the_worst_slowdown_is_named() -> None:
    found = compute_fairness(["a", "b", "c"], np.array([1.0, 9.0, 2.0]))
    assert (found.worst, found.worst_slowdown) == ("b", 9.0)


def test_percentiles_lie_between_values() -> None:
    found = compute_distribution(np.arange(101.0))
    assert (found.mean, found.p50, found.p90, found.p99, found.max) == (50, 50, 90, 99, 100)


def test_utilisation_over_time_adds_up_to_the_mean_utilisation() -> None:
    _, workload = workload_of("1x4", (0, 100, 4), (0, 50, 2))
    attempts = to_attempt_table([AttemptSpan(0, 0, 100, 0), AttemptSpan(1, 100, 150, 0)])
    points = utilisation_over_time(attempts, np.array([4.0, 2.0]), 4, 200)
    assert np.mean([y for _, y in points]) == pytest.approx((400 + 100) / 800 * 100)
    assert points[0][1] == pytest.approx(100)
    assert points[-1][1] == pytest.approx(0)
    assert len(compute_job_times(workload, attempts).job_indexes) == 2


def test_the_queue_length_includes_preempted_jobs() -> None:
    attempts = to_attempt_table(
        [AttemptSpan(0, 0, 50, 50), AttemptSpan(0, 100, 200, 0), AttemptSpan(1, 50, 100, 0)]
    )
    points = queue_length_over_time(attempts, [0.0, 0.0], 240)
    assert [round(points[at][1], 3) for at in (10, 75, 150, 230)] == [1, 1, 0, 0]


def test_a_cumulative_distribution_ends_at_100_percent() -> None:
    points = cumulative_distribution(np.array([0.0, 10.0, 1000.0]), 1.0)
    assert points[0] == (1.0, 0.0)
    assert points[-1] == (1000.0, 100.0)
    assert cumulative_distribution(np.array([]), 1.0) == []
