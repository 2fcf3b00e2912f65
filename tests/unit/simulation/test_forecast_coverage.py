"""The accuracy of forecasts, measured in a replay."""

from heliostat.simulation.cluster import parse_cluster
from heliostat.simulation.comparison import ReplayScenario, replay_policy
from heliostat.simulation.forecast_coverage import ForecastCoverage, sample_jobs
from heliostat.simulation.policies import read_policy
from heliostat.simulation.traces.synthetic import SyntheticTraceSpec, generate_trace
from heliostat.simulation.traces.trace import TraceJob
from heliostat.simulation.workload import build_workload

HOUR = 3600.0


def coverage(jobs: tuple[TraceJob, ...], nodes: str, sample: int) -> ForecastCoverage:
    cluster = parse_cluster(nodes)
    scenario = ReplayScenario(cluster, build_workload(jobs, cluster), forecast_sample=sample)
    found = replay_policy(scenario, read_policy("fairshare"), lambda name, ended: None)
    assert found.forecasts is not None
    return found.forecasts


def test_most_starts_are_within_the_range_on_a_trace_with_bursts() -> None:
    trace = generate_trace(SyntheticTraceSpec(jobs=1200, seed=11, gpus=16, load=0.85))
    found = coverage(trace.jobs, "2x8", 300)
    assert found.shown.of + found.immediate + found.without_forecast == 300
    assert 0.7 <= found.shown.within / found.shown.of <= 0.9
    assert found.shown.within > found.computed.within
    assert found.shown.median_width is not None


def test_a_job_that_starts_at_once_is_not_forecast() -> None:
    jobs = tuple(TraceJob(index * 2 * HOUR, HOUR, HOUR, 1) for index in range(10))
    found = coverage(jobs, "1x1", 10)
    assert (found.immediate, found.shown.of) == (10, 0)


def test_without_a_sample_nothing_is_forecast() -> None:
    jobs = tuple(TraceJob(float(index), HOUR, HOUR, 1) for index in range(5))
    cluster = parse_cluster("1x1")
    scenario = ReplayScenario(cluster, build_workload(jobs, cluster))
    assert replay_policy(scenario, read_policy("fairshare"), lambda name, ended: None).forecasts is None


def test_forecasts_do_not_change_the_replay() -> None:
    jobs = generate_trace(SyntheticTraceSpec(jobs=200, seed=2, gpus=8, load=1.0)).jobs
    cluster = parse_cluster("1x8")
    workload = build_workload(jobs, cluster)
    plain, forecast = (
        replay_policy(
            ReplayScenario(cluster, workload, forecast_sample=sample),
            read_policy("fairshare"),
            lambda name, ended: None,
        )
        for sample in (0, 20)
    )
    assert (plain.attempts == forecast.attempts).all()


def test_a_sample_is_spread_over_all_jobs() -> None:
    assert list(sample_jobs(10, 5)) == [1, 3, 5, 7, 9]
    assert list(sample_jobs(3, 5)) == [1, 2, 3]
    assert list(sample_jobs(3, 0)) == []
