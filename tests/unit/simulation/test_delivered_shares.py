"""Weeks in which each department and project receives what it is entitled to."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from heliostat.models import Department, JobSpan, Project
from heliostat.scheduling.delivery_report import DeliveryPeriod, build_delivery_report
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.simulation.cluster import parse_cluster
from heliostat.simulation.comparison import QueuePlanner
from heliostat.simulation.policies import read_policy
from heliostat.simulation.replay import AttemptSpan, replay
from heliostat.simulation.traces.trace import TraceJob
from heliostat.simulation.workload import Workload, build_workload

HOUR = 3600.0
DAY = 24 * HOUR
SHARES = {"imaging": {"vision": 2, "audio": 1}, "physics": {"lattice": 1, "optics": 1}}
SHARES_OF_DEPARTMENTS = {"imaging": 3, "physics": 1}
DAYS_WITHOUT_WORK = {"lattice": (7, 18), "audio": (17, 30)}


def four_projects(seed: int, hours: float) -> list[TraceJob]:
    """Five weeks on 16 GPUs. Each project asks for one and a half times its share, except on days without work."""
    random, jobs = Random(seed), []
    for department, shares in SHARES.items():
        for project, share in shares.items():
            gpus = 16 * SHARES_OF_DEPARTMENTS[department] / 4 * share / sum(shares.values())
            first, last = DAYS_WITHOUT_WORK.get(project, (0, 0))
            at = 0.0
            while (at := at + random.expovariate(1.5 * gpus / (hours * HOUR))) < 35 * DAY:
                seconds, user = hours * random.uniform(0.5, 1.5) * HOUR, f"{project}{random.randrange(3)}"
                if not first * DAY <= at < last * DAY:
                    names = {"user": user, "project": project, "department": department}
                    jobs.append(TraceJob(at, seconds, seconds, 1, **names))
    return sorted(jobs, key=lambda job: job.submitted_at)


def job_spans(workload: Workload, attempts: list[AttemptSpan]) -> Iterator[JobSpan]:
    began = workload.jobs[0].submitted_at.timestamp()
    for attempt in attempts:
        job, submitted = workload.jobs[attempt.job_index], workload.submitted_seconds[attempt.job_index]
        request = (job.id, job.project, job.user, job.priority_class, job.resources.gpus, 0, 0)
        yield JobSpan(
            *request,
            gpu_type=None,
            array_id=None,
            array_limit=None,
            waits_for_reservation=False,
            submitted_at=began + submitted,
            waited_seconds=attempt.started_seconds - submitted,
            started_at=began + attempt.started_seconds,
            ended_at=began + attempt.ended_seconds,
        )


@pytest.mark.parametrize(("seed", "hours"), [(1, 5), (3, 10)])
def test_in_every_week_every_account_receives_what_it_is_entitled_to(seed: int, hours: float) -> None:
    """Within 10%; in a week in which it asks for less than its share, of its share."""
    cluster = parse_cluster("2x8")
    workload = build_workload(four_projects(seed, hours), cluster)
    shares = {project: share for department in SHARES.values() for project, share in department.items()}
    named = replace(read_policy("fairshare"), projects=shares, departments=SHARES_OF_DEPARTMENTS)
    attempts = replay(workload, QueuePlanner(named, cluster.nodes, workload.departments))
    began = workload.jobs[0].submitted_at
    accounts = ShareAccounts(
        {name: Department(name, share) for name, share in SHARES_OF_DEPARTMENTS.items()},
        {name: Project(name, workload.departments[name], share=share) for name, share in shares.items()},
    )
    period = DeliveryPeriod(began, began + timedelta(days=35), step_days=1)
    report = build_delivery_report(job_spans(workload, attempts), period, accounts, named.policy)
    for account in [*report, *(project for department in report for project in department.children)]:
        assert account.share_fraction is not None
        for days in (slice(first, first + 7) for first in range(7, 35, 7)):
            delivered, entitled = sum(account.delivered[days]), sum(account.entitled[days])
            share = account.share_fraction * sum(sum(department.delivered[days]) for department in report)
            assert delivered == pytest.approx(entitled, abs=0.1 * max(entitled, share))
        assert account.name not in DAYS_WITHOUT_WORK or min(account.entitled) == 0
