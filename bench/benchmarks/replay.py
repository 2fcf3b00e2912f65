"""What the policies make of the same made-up jobs, and how fast they are replayed."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measurements import OUR_SYSTEM, Measurement
from bench.settings import Settings
from heliostat.simulation.cluster import parse_cluster
from heliostat.simulation.comparison import PolicyResult, ReplayScenario, compare_policies
from heliostat.simulation.policies import read_policies
from heliostat.simulation.traces.synthetic import SyntheticTraceSpec, generate_trace
from heliostat.simulation.workload import build_workload

BENCHMARK = "replay"
NODES = "8x8"
RECIPE = SyntheticTraceSpec(jobs=3000, seed=7, gpus=64, load=0.9)
POLICIES = ("fairshare", "fifo", "easy", "sjf", "las")


def measure(settings: Settings) -> Iterator[Measurement]:
    cluster = parse_cluster(NODES)
    scenario = ReplayScenario(cluster, build_workload(generate_trace(RECIPE).jobs, cluster))
    for outcome in compare_policies(scenario, read_policies(POLICIES), 1, lambda name, over: None):
        yield from _of(outcome)


def _of(outcome: PolicyResult) -> Iterator[Measurement]:
    system = OUR_SYSTEM if outcome.policy == "fairshare" else outcome.policy
    figures, note = outcome.metrics, f"{RECIPE.jobs} made-up jobs, {NODES}, load {RECIPE.load:g}"
    yield Measurement(BENCHMARK, "wait, mean", system, figures.wait.mean / 60, "min", "lower", note)
    yield Measurement(BENCHMARK, "wait, p99", system, figures.wait.p99 / 60, "min", "lower")
    yield Measurement(
        BENCHMARK, "slowdown of the worst-off project", system, figures.projects.worst_slowdown, "", "lower"
    )
    yield Measurement(BENCHMARK, "fairness of projects (Jain)", system, figures.projects.jain, "", "higher")
    yield Measurement(BENCHMARK, "speed", system, figures.jobs / outcome.replay_seconds, "jobs/s", "higher")
