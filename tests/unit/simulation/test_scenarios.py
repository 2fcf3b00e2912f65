"""Promises of the default policy, measured against `easy` on random arrivals with several seeds."""

from collections import defaultdict
from dataclasses import replace
from random import Random
from statistics import median

import pytest

from heliostat.simulation.cluster import parse_cluster
from heliostat.simulation.comparison import QueuePlanner
from heliostat.simulation.policies import read_policy
from heliostat.simulation.replay import AttemptSpan, replay
from heliostat.simulation.traces.trace import TraceJob
from heliostat.simulation.workload import build_workload

HOUR = 3600.0
DAY = 24 * HOUR


def wait_hours(jobs: list[TraceJob], preset: str, nodes: str = "1x8") -> dict[TraceJob, float]:
    """Hours from the submission of each job to its first start."""
    in_order = sorted(jobs, key=lambda job: job.submitted_at)
    cluster = parse_cluster(nodes)
    workload = build_workload(in_order, cluster)
    first: dict[int, float] = {}
    for span in replay(workload, QueuePlanner(read_policy(preset), cluster.nodes, workload.departments)):
        first[span.job_index] = min(span.started_seconds, first.get(span.job_index, span.started_seconds))
    return {
        in_order[index]: (started - workload.submitted_seconds[index]) / HOUR for index, started in first.items()
    }


def stream_with_gangs(seed: int) -> list[TraceJob]:
    """Two weeks of jobs with one GPU, 80% of a node with 8, and a job with 8 GPUs every second day."""
    random = Random(seed)
    jobs, at = [], 0.0
    while at < 14 * DAY:
        at += random.expovariate(0.8 * 8 / (3 * HOUR))
        user = f"user-{random.randrange(6)}"
        jobs.append(TraceJob(at, random.uniform(2, 4) * HOUR, 4 * HOUR, 1, user=user, project=f"of-{user}"))
    days = range(1, 14, 2)
    gangs = [TraceJob(day * DAY + random.uniform(0, DAY), 3 * HOUR, 4 * HOUR, 8, user="gang") for day in days]
    return jobs + gangs


def test_a_job_that_needs_a_whole_node_gets_it_soon_in_a_stream_of_small_ones() -> None:
    waits: dict[str, list[float]] = {"easy": [], "fairshare": []}
    small: dict[str, list[float]] = {"easy": [], "fairshare": []}
    for seed in range(4):
        jobs = stream_with_gangs(seed)
        for preset in waits:
            found = wait_hours(jobs, preset)
            waits[preset] += [hours for job, hours in found.items() if job.gpus == 8]
            small[preset] += [hours for job, hours in found.items() if job.gpus == 1]
    assert median(waits["fairshare"]) <= 1.5 * median(waits["easy"])
    assert max(waits["fairshare"]) <= 1.5 * max(waits["easy"])
    assert sum(small["fairshare"]) <= 1.1 * sum(small["easy"])


def two_projects(seed: int, hours_of_a: float, hours_of_b: float, limit_factor: float) -> list[TraceJob]:
    """Both ask for more than all 16 GPUs, for three weeks."""
    random, jobs = Random(seed), []
    for project, hours in (("a", hours_of_a), ("b", hours_of_b)):
        at = 0.0
        while at < 21 * DAY:
            at += random.expovariate(1.1 * 16 / (hours * HOUR))
            seconds = hours * random.uniform(0.5, 1.5) * HOUR
            user = f"{project}{random.randrange(3)}"
            jobs.append(TraceJob(at, seconds, limit_factor * seconds, 1, user=user, project=project))
    return jobs


@pytest.mark.parametrize(
    ("hours_of_a", "hours_of_b", "limit_factor"), [(8, 8, 1), (48, 4, 1), (4, 48, 1), (48, 4, 4), (4, 48, 2)]
)
def test_shares_of_three_to_one_are_delivered_to_jobs_of_any_length_with_any_limits(
    hours_of_a: float, hours_of_b: float, limit_factor: float
) -> None:
    cluster = parse_cluster("2x8")
    jobs = sorted(two_projects(1, hours_of_a, hours_of_b, limit_factor), key=lambda job: job.submitted_at)
    workload = build_workload(jobs, cluster)
    named = replace(read_policy("fairshare"), projects={"a": 3})
    used = {"a": 0.0, "b": 0.0}
    for span in replay(workload, QueuePlanner(named, cluster.nodes, workload.departments)):
        inside = min(span.ended_seconds, 21 * DAY) - max(span.started_seconds, 10 * DAY)
        used[jobs[span.job_index].project] += max(inside, 0.0)
    assert used["a"] / used["b"] == pytest.approx(3, rel=0.1)


def replay_three_to_one(jobs: list[TraceJob], cpus: int | None, memory_mib: int | None) -> list[AttemptSpan]:
    cluster = parse_cluster("1x8", cpus, memory_mib)
    workload = build_workload(jobs, cluster)
    named = replace(read_policy("fairshare"), projects={"a": 3})
    return replay(workload, QueuePlanner(named, cluster.nodes, workload.departments))


def test_cpus_and_memory_that_are_not_stated_cost_nothing_and_shares_hold() -> None:
    flood = [
        TraceJob(n * 600 + late, hours * HOUR + n, 5 * HOUR, 1, user=project, project=project)
        for n in range(40)
        for late, (project, hours) in enumerate((("a", 2 + n % 3), ("b", 4)))
    ]
    light = [TraceJob(5 * HOUR + n * 60, 4 * HOUR + n, 5 * HOUR, 1, user="light", project="a") for n in range(8)]
    jobs = sorted(flood + light, key=lambda job: job.submitted_at)
    spans = replay_three_to_one(jobs, cpus=None, memory_mib=None)
    assert spans == replay_three_to_one(jobs, cpus=32, memory_mib=1024), "nothing is short of them"
    used: defaultdict[str, float] = defaultdict(float)
    longest_wait: defaultdict[str, float] = defaultdict(float)
    for span in spans:
        job = jobs[span.job_index]
        used[job.project] += min(span.ended_seconds, DAY) - min(span.started_seconds, DAY)
        if job.submitted_at >= 5 * HOUR:
            longest_wait[job.user] = max(longest_wait[job.user], span.started_seconds - job.submitted_at)
    assert used["a"] / used["b"] == pytest.approx(3, rel=0.1)
    assert longest_wait["light"] < longest_wait["a"] / 2, "the users of a project have equal shares"


def test_a_newcomer_starts_soon_beside_a_flood_of_short_jobs() -> None:
    """The jobs of the flood wait for days, and are much shorter."""
    flood = [TraceJob(0.0, 900, 900, 1, user="flood", project="old") for _ in range(6000)]
    newcomer = [TraceJob(2 * DAY + index, 8 * HOUR, 8 * HOUR, 1, user="new", project="new") for index in range(10)]
    first = {
        preset: min(hours for job, hours in wait_hours(flood + newcomer, preset).items() if job.user == "new")
        for preset in ("easy", "fairshare")
    }
    assert first["fairshare"] <= 0.1 * first["easy"]
