"""What the policies make of the same made-up jobs, and how fast they are replayed."""

from __future__ import annotations

from collections.abc import Iterator

from bench.figures import OURS, Figure
from bench.settings import Settings
from heliostat.simulation.cluster import parse_cluster
from heliostat.simulation.comparison import Outcome, Scenario, compare
from heliostat.simulation.fitting import fit
from heliostat.simulation.policies import read_policies
from heliostat.simulation.traces.made_up import Recipe, make_up

PART = "replay"
NODES = "8x8"
RECIPE = Recipe(jobs=3000, seed=7, gpus=64, load=0.9)
POLICIES = ("fairshare", "fifo", "easy", "sjf", "las")


def measure(settings: Settings) -> Iterator[Figure]:
    cluster = parse_cluster(NODES)
    scenario = Scenario(cluster, fit(make_up(RECIPE).jobs, cluster))
    for outcome in compare(scenario, read_policies(POLICIES), 1, lambda name, over: None):
        yield from _of(outcome)


def _of(outcome: Outcome) -> Iterator[Figure]:
    system = OURS if outcome.policy == "fairshare" else outcome.policy
    figures, note = outcome.figures, f"{RECIPE.jobs} made-up jobs, {NODES}, load {RECIPE.load:g}"
    yield Figure(PART, "wait, mean", system, figures.wait.mean / 60, "min", "lower", note)
    yield Figure(PART, "wait, p99", system, figures.wait.p99 / 60, "min", "lower")
    yield Figure(PART, "slowdown of the worst-off project", system, figures.projects.worst_slowdown, "", "lower")
    yield Figure(PART, "fairness of projects (Jain)", system, figures.projects.jain, "", "higher")
    yield Figure(PART, "speed", system, figures.jobs / outcome.seconds, "jobs/s", "higher")
