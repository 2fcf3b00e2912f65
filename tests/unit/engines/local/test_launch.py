from dataclasses import replace

import pytest

from heliostat.config import QueueSettings
from heliostat.engines.local.launch import hard_limit_seconds, make_cgroup_limits
from heliostat.models import Attempt, Resources, TaskPlacement
from unit.scheduling.builders import a_job

QUEUE = QueueSettings(max_time_limit_seconds=5000)
SINGLE = Attempt("1.1", a_job(1, Resources(2, 100)), "a")


def test_the_limits_of_a_gang_are_those_of_all_its_tasks() -> None:
    gang = replace(SINGLE, places=(TaskPlacement("a"),) * 3)
    assert (make_cgroup_limits(SINGLE, QUEUE).cpus, make_cgroup_limits(SINGLE, QUEUE).memory_mib) == (2, 100)
    assert (make_cgroup_limits(gang, QUEUE).cpus, make_cgroup_limits(gang, QUEUE).memory_mib) == (6, 300)


@pytest.mark.parametrize(
    ("limit", "overtime", "hard"), [(None, False, 0), (None, True, 0), (60, False, 60), (60, True, 5000)]
)
def test_overtime_ends_at_what_nobody_may_exceed(limit: int | None, overtime: bool, hard: int) -> None:
    job = replace(SINGLE.job, time_limit_seconds=limit, overtime=overtime)
    assert hard_limit_seconds(replace(SINGLE, job=job), QUEUE) == hard


def test_a_limit_set_before_the_longest_was_lowered_still_holds() -> None:
    job = replace(SINGLE.job, time_limit_seconds=9000, overtime=True)
    assert hard_limit_seconds(replace(SINGLE, job=job), QUEUE) == 9000
