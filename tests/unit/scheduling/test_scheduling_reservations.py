"""Reservation windows."""

from dataclasses import replace
from datetime import timedelta

import pytest

from heliostat.models import Job, Reservation, Resources
from heliostat.scheduling.reservations import list_reservation_windows
from unit.scheduling.builders import NOW, a_job, a_node, a_plan, a_queue_state, a_running_job, started

HOUR = 3600
NODE = a_node("a", cpus=16, gpus=4)


def gpu_job(number: int, gpus: float = 1, hours: float = 1, project: str = "other") -> Job:
    return a_job(number, Resources(1, 10, gpus), time_limit_seconds=int(hours * HOUR), project=project)


def reserved(start: float, end: float, **fields: object) -> Reservation:
    made = Reservation("x", ("a",), NOW + timedelta(hours=start), NOW + timedelta(hours=end), project="course")
    return replace(made, **fields)  # type: ignore[arg-type]


def starts(*jobs: Job, reservation: Reservation) -> set[int]:
    return set(started(a_plan(a_queue_state((NODE,), jobs, reservations=(reservation,)))))


def test_each_week_of_a_course_is_a_window_and_unknown_nodes_are_ignored() -> None:
    weekly = reserved(-24 * 8, -24 * 8 + 1, weeks=4, nodes=("gone", "a"))
    board = a_queue_state((NODE,), [], reservations=(weekly, reserved(1, 2, nodes=("gone",))))
    found = list_reservation_windows(board.snapshot(NOW), NOW)
    assert [(window.start - NOW.timestamp()) / 86400 for window in found] == [6, 13]
    assert [window.nodes.tolist() for window in found] == [[0], [0]]


def test_a_job_may_end_just_when_a_window_opens() -> None:
    assert starts(gpu_job(1, hours=2), gpu_job(2, hours=2.01), reservation=reserved(2, 4)) == {1}


def test_a_project_uses_its_own_reservation_and_no_project_uses_maintenance() -> None:
    jobs = gpu_job(1, project="course", hours=9), gpu_job(2, hours=9)
    assert starts(*jobs, reservation=reserved(-1, 4)) == {1}
    assert starts(*jobs, reservation=reserved(-1, 4, project=None)) == set()
    assert starts(*jobs, reservation=reserved(-4, -1)) == {1, 2}


@pytest.mark.parametrize("start", [-1, 0.5])
def test_other_projects_leave_as_many_devices_as_are_reserved(start: float) -> None:
    partial = reserved(start, 4, gpus_per_node=3)
    others = [gpu_job(number) for number in (1, 2, 3)]
    assert len(starts(*others, reservation=partial)) == 1
    running = replace(
        a_running_job(9, "a", Resources(1, 10, 2), devices=("a-0", "a-1"), project="course"),
        time_limit_seconds=9 * HOUR,
    )
    assert len(starts(running, *others, reservation=partial)) == 1  # two of the three are in use already
    foreign = replace(running, project="other")
    assert starts(foreign, *others, reservation=partial) == set()


def test_jobs_that_end_before_a_reservation_do_not_count_in_it() -> None:
    foreign = a_running_job(9, "a", Resources(1, 10, 3), devices=("a-0", "a-1", "a-2"), time_limit_seconds=HOUR)
    assert starts(foreign, gpu_job(1, hours=3), reservation=reserved(2, 4, gpus_per_node=3)) == {1}
    assert starts(foreign, gpu_job(1, hours=3), reservation=reserved(0.5, 4, gpus_per_node=3)) == set()


def test_jobs_of_its_project_use_up_the_reserved_devices_first() -> None:
    partial = reserved(-1, 4, gpus_per_node=2)
    jobs = [gpu_job(1, 2, project="course"), gpu_job(2, 1), gpu_job(3, 1), gpu_job(4, 1)]
    assert len(starts(*jobs, reservation=partial)) == 3
