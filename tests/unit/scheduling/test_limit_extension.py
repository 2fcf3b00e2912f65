"""A longer limit of a running job must not delay the booking of another user."""

from dataclasses import replace
from datetime import timedelta

import pytest

from heliostat.models import Resources
from heliostat.scheduling.limit_extension import find_delayed_bookings
from heliostat.scheduling.queue_state import QueueState
from unit.scheduling.builders import NOW, a_job, a_node, a_queue_state, a_running_job

HOUR = 3600


def a_booked_state(user: str) -> QueueState:
    """Job 1 needs both GPUs and is booked for the end of job 9 in two hours; job 8 ends in one hour."""
    one_gpu = Resources(1, 10, 1)
    jobs = [
        a_job(1, Resources(1, 10, 2), user=user, time_limit_seconds=HOUR, booked_at=NOW),
        a_running_job(8, "a", one_gpu, devices=("a-0",), time_limit_seconds=HOUR),
        a_running_job(9, "a", one_gpu, devices=("a-1",), time_limit_seconds=2 * HOUR, user="bob"),
    ]
    waiting = replace(jobs[0], submitted_at=NOW - timedelta(hours=1))
    return a_queue_state((a_node("a", gpus=2),), [waiting, *jobs[1:]])


@pytest.mark.parametrize(("hours", "user", "delayed"), [(3, "eve", [1]), (2, "eve", []), (3, "ann", [])])
def test_only_an_extension_that_delays_another_user_is_found(hours: int, user: str, delayed: list[int]) -> None:
    found = find_delayed_bookings(a_booked_state(user), 8, hours * HOUR, NOW)
    assert [booked.job_id for booked in found] == delayed
