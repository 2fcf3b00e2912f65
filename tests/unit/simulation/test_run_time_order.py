"""Expected run times in the order of the queue: what they are worth, to honest users and to others."""

from collections import defaultdict
from collections.abc import Callable
from random import Random
from statistics import mean

import pytest

from heliostat.simulation.cluster import parse_cluster
from heliostat.simulation.comparison import QueuePlanner
from heliostat.simulation.policies import read_policy
from heliostat.simulation.replay import replay
from heliostat.simulation.traces.trace import TraceJob
from heliostat.simulation.workload import build_workload

HOUR = 3600.0
DAY = 24 * HOUR
Names = Callable[[str, float], str]


def mean_wait_hours(jobs: list[TraceJob]) -> dict[str, float]:
    """By user, of jobs that run for an hour or more."""
    in_order = sorted(jobs, key=lambda job: job.submitted_at)
    cluster = parse_cluster("1x8")
    workload = build_workload(in_order, cluster)
    waits: defaultdict[str, list[float]] = defaultdict(list)
    for span in replay(workload, QueuePlanner(read_policy("fairshare"), cluster.nodes, workload.departments)):
        if in_order[span.job_index].run_seconds >= HOUR:
            waited = span.started_seconds - workload.submitted_seconds[span.job_index]
            waits[in_order[span.job_index].user].append(waited / HOUR)
    return {user: mean(found) for user, found in waits.items()}


def three_users(seed: int, name_of: Names) -> list[TraceJob]:
    """Four weeks of short and long jobs of three users of a project, with equal limits: more than all 8 GPUs."""
    random, jobs = Random(seed), []
    for user in ("ann", "bob", "cem"):
        at = 0.0
        while at < 28 * DAY:
            at += random.expovariate(1.15 * 8 / 3 / (4.1 * HOUR))
            seconds = random.choice([0.2, 8]) * random.uniform(0.5, 1.5) * HOUR
            jobs.append(TraceJob(at, seconds, 24 * HOUR, 1, user=user, name=name_of(user, seconds)))
    return jobs


def by_length(user: str, seconds: float) -> str:
    return "long" if seconds > HOUR else "short"


def test_jobs_of_known_length_are_ordered_by_it_although_all_limits_are_equal() -> None:
    waits = {}
    for known in (True, False):
        jobs = three_users(1, by_length if known else lambda user, seconds: f"{user} {seconds}")
        in_order = sorted(jobs, key=lambda job: job.submitted_at)
        cluster = parse_cluster("1x8")
        workload = build_workload(in_order, cluster)
        spans = replay(workload, QueuePlanner(read_policy("fairshare"), cluster.nodes, workload.departments))
        waits[known] = mean(
            span.started_seconds - workload.submitted_seconds[span.job_index]
            for span in spans
            if in_order[span.job_index].run_seconds < HOUR
        )
    assert waits[True] < 0.8 * waits[False]


@pytest.mark.parametrize("seed", [1, 2])
def test_who_gives_long_jobs_the_name_of_short_ones_gains_next_to_nothing(seed: int) -> None:
    def one_name_for_all(user: str, seconds: float) -> str:
        return "short" if user == "cem" else by_length(user, seconds)

    honest, lying = (mean_wait_hours(three_users(seed, names)) for names in (by_length, one_name_for_all))
    assert lying["cem"] > 0.85 * honest["cem"]
    assert lying["ann"] < 1.15 * honest["ann"]


def test_a_new_name_for_every_job_gains_nothing() -> None:
    def new_names(user: str, seconds: float) -> str:
        return f"{seconds}" if user == "cem" else by_length(user, seconds)

    honest, lying = (mean_wait_hours(three_users(3, names)) for names in (by_length, new_names))
    assert lying["cem"] > 0.95 * honest["cem"]


def test_a_job_that_all_others_overtake_starts_when_it_is_overdue() -> None:
    """Small jobs of the same project use the whole node for 50 days; the large one has the fewest points."""
    random, at, jobs = Random(1), 0.0, []
    while at < 50 * DAY:
        at += random.expovariate(1.3 * 8 / HOUR)
        jobs.append(TraceJob(at, HOUR, HOUR, 1, user=f"u{random.randrange(9)}"))
    large = TraceJob(DAY, 4 * DAY, 7 * DAY, 4, user="u0", name="large")
    in_order = sorted([*jobs, large], key=lambda job: job.submitted_at)
    cluster = parse_cluster("1x8")
    workload = build_workload(in_order, cluster)
    spans = replay(workload, QueuePlanner(read_policy("fairshare"), cluster.nodes, workload.departments))
    (started,) = (span.started_seconds for span in spans if in_order[span.job_index] is large)
    assert started - DAY <= 30.5 * DAY
