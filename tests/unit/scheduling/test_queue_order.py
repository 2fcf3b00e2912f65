"""The order of the queue."""

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from hypothesis import example, given

from heliostat.models import Department, Job, Project, Resources
from heliostat.scheduling.policy import QueueOrdering, SchedulingPolicy
from heliostat.scheduling.queue_order import priority_points, sort_pending
from heliostat.scheduling.share_accounts import ShareAccounts
from unit.scheduling.builders import NOW, a_job, a_node, a_queue_state, a_running_job
from unit.scheduling.random_cases import ALL, MANY, Case, a_case, cases
from unit.scheduling.reference_points import reference_order, reference_points
from unit.scheduling.simulated_time import Simulation

HOUR = 3600
NODES = (a_node("a", gpus=4),)
FAIR_SHARE = replace(ALL, orders=(QueueOrdering.FAIR_SHARE,))


def in_order(jobs: Iterable[Job], policy: SchedulingPolicy | None = None) -> list[int]:
    board = a_queue_state(NODES, jobs, policy)
    snapshot = board.snapshot(NOW)
    return snapshot.pending["job"][sort_pending(snapshot, board.policy, NOW.timestamp())].tolist()


def gpu_job(number: int, hours: float = 1, waited: float = 0, **fields: object) -> Job:
    job = a_job(number, Resources(1, 10, 1), time_limit_seconds=int(hours * HOUR), **fields)
    return replace(job, submitted_at=NOW - timedelta(hours=waited))


def test_ten_times_the_size_has_the_same_points_after_ten_times_the_wait() -> None:
    assert in_order([gpu_job(1, hours=10, waited=8), gpu_job(2, hours=1)]) == [2, 1]
    assert in_order([gpu_job(1, hours=10, waited=12), gpu_job(2, hours=1)]) == [1, 2]


def test_points_are_class_and_priority_minus_size_plus_wait_and_some_for_a_first_job() -> None:
    job = gpu_job(1, hours=2, waited=3, priority=1, priority_everywhere=True, priority_class="interactive")
    snapshot = a_queue_state(NODES, [job]).snapshot(NOW)
    size = 2 * (1 + 0.02 + 10 / 1024 * 0.002) + 0.1
    first_job = 2 * 2
    expected = 4 + 3 * 1 - math.log2(size) + math.log2(3 + 1) + first_job
    assert priority_points(snapshot, SchedulingPolicy(), NOW.timestamp())[0] == pytest.approx(expected, abs=1e-6)


def test_the_priority_of_a_manager_orders_their_project_in_its_own_turns() -> None:
    others = [gpu_job(number, hours=number, project="other", user="bob") for number in (1, 3, 5)]
    mine = [gpu_job(number, hours=number, project="mine") for number in (2, 4, 6)]
    assert in_order([*others, *mine]) == [1, 2, 3, 4, 5, 6]
    raised = in_order([*others, *mine[:2], replace(mine[2], priority=1000)])
    assert [number for number in raised if number % 2] == [1, 3, 5]
    assert [number for number in raised if not number % 2] == [6, 2, 4]
    assert raised.index(3) < raised.index(2)  # job 6 was charged to the project
    by_admin = [*mine[:2], replace(mine[2], priority=1000, priority_everywhere=True)]
    assert in_order([*others, *by_admin])[0] == 6


def test_jobs_of_a_project_are_ordered_by_class_and_priority_and_scavengers_are_last() -> None:
    yielding = gpu_job(1, priority=1000, priority_class="scavenger")
    jobs = [yielding, gpu_job(2), gpu_job(3, priority_class="interactive"), gpu_job(4, hours=9, project="other")]
    found = in_order(jobs)
    assert found[0] == 3
    assert found[-1] == 1


def test_the_department_and_in_it_the_project_that_used_least_of_its_share_has_the_next_turn() -> None:
    """Neither long waits nor small jobs of others change that."""
    accounts = ShareAccounts(
        {"lab": Department("lab"), "clinic": Department("clinic")},
        {name: Project(name, home) for name, home in (("vision", "lab"), ("audio", "lab"), ("scans", "clinic"))},
    )
    busy = a_running_job(9, "a", Resources(1, 10, 2), project="vision", devices=("a-0", "a-1"))
    jobs = [
        gpu_job(1, hours=0.1, waited=700, project="vision"),
        gpu_job(2, hours=20, project="audio", user="bob"),
        gpu_job(3, hours=90, project="scans", user="cem"),
    ]
    board = a_queue_state(NODES, [replace(busy, time_limit_seconds=99 * HOUR), *jobs], accounts=accounts)
    snapshot = board.snapshot(NOW)
    found = snapshot.pending["job"][sort_pending(snapshot, board.policy, NOW.timestamp())]
    assert found.tolist() == [3, 2, 1]


def test_a_booked_job_stays_ahead_of_jobs_of_a_higher_class_that_were_behind_it() -> None:
    booked = gpu_job(1, waited=200, waits_since=NOW - timedelta(hours=200), booked_at=NOW)
    flood = [gpu_job(number, priority_class="interactive") for number in range(2, 20)]
    assert in_order([booked, *flood])[0] == 1
    assert in_order([replace(booked, waits_since=NOW), *flood])[-1] == 1  # the class counts more than its wait


def test_only_time_in_the_queue_counts_as_waiting() -> None:
    old = gpu_job(1, hours=2, waited=100)
    since = replace(old, waits_since=NOW - timedelta(hours=1))
    assert in_order([gpu_job(2, waited=2), old]) == [1, 2]
    assert in_order([gpu_job(2, waited=2), since]) == [2, 1]
    assert in_order([gpu_job(2, waited=2), replace(since, waited_seconds=99 * HOUR)]) == [1, 2]


@pytest.mark.parametrize("name", ["normal", "scavenger", "urgent"])
@pytest.mark.parametrize("order", list(QueueOrdering))
def test_of_equal_jobs_the_one_submitted_first_is_first_in_any_order_of_arrival(
    order: QueueOrdering, name: str
) -> None:
    jobs = [gpu_job(number, priority_class=name) for number in range(1, 200)]
    Random(1).shuffle(jobs)
    assert in_order(jobs, SchedulingPolicy(order=order)) == list(range(1, 200))


def test_the_oldest_overdue_job_of_a_project_is_first_in_any_order_of_arrival() -> None:
    month = 31 * 24
    raised = gpu_job(1, priority=5)
    assert in_order([raised, gpu_job(2, waited=month)]) == [2, 1]
    assert in_order([raised, gpu_job(3, hours=9, waited=month), gpu_job(2, waited=month)]) == [2, 1, 3]
    assert in_order([gpu_job(2, waited=month), gpu_job(3, hours=9, waited=month), raised]) == [2, 1, 3]


@pytest.mark.parametrize("order", [QueueOrdering.FAIR_SHARE, QueueOrdering.LEAST_ATTAINED_SERVICE])
def test_the_order_in_which_usage_is_added_up_breaks_no_tie(order: QueueOrdering) -> None:
    """0.1 + 0.2 + 0.3 is more than 0.3 + 0.2 + 0.1."""
    jobs = [gpu_job(number, project=f"p{number}") for number in (1, 2)]
    running = [
        a_running_job(
            10 * number + tenths, "a", Resources(1, 10, tenths / 10), project=f"p{number}", devices=("a-0",)
        )
        for number, order_of_arrival in ((1, (1, 2, 3)), (2, (3, 2, 1)))
        for tenths in order_of_arrival
    ]
    assert in_order([*running, *jobs], SchedulingPolicy(order=order)) == [1, 2]


def test_the_other_orders_sort_by_one_value() -> None:
    jobs = [gpu_job(1, hours=3), gpu_job(2, hours=1), gpu_job(3, hours=2, user="bob")]
    assert in_order(jobs, SchedulingPolicy(order=QueueOrdering.FIFO)) == [1, 2, 3]
    assert in_order(jobs, SchedulingPolicy(order=QueueOrdering.SHORTEST_JOB_FIRST)) == [2, 3, 1]
    running = a_running_job(9, "a", Resources(1, 10, 1), devices=("a-0",), time_limit_seconds=HOUR)
    assert in_order([*jobs, running], SchedulingPolicy(order=QueueOrdering.LEAST_ATTAINED_SERVICE)) == [3, 1, 2]


@pytest.mark.parametrize("order", list(QueueOrdering))
def test_preemptible_jobs_are_behind_the_jobs_that_may_preempt_them(order: QueueOrdering) -> None:
    jobs = [
        gpu_job(1, waited=500, preemptible=True),
        gpu_job(2, priority_class="interactive"),
        gpu_job(3, waited=500, priority_class="scavenger"),
        gpu_job(4, hours=2, waited=400),
    ]
    found = in_order(jobs, SchedulingPolicy(order=order))
    assert found.index(2) < found.index(1)
    assert found[-1] == 3
    assert set(in_order(jobs, SchedulingPolicy(order=order, preempts=False))) == {1, 2, 3, 4}


@pytest.mark.parametrize("order", list(QueueOrdering))
def test_a_preempted_job_does_not_take_its_place_back(order: QueueOrdering) -> None:
    old = replace(gpu_job(1, hours=5, waited=500, preemptible=True), resources=Resources(1, 10, 4))
    uuids = tuple(f"a-{index}" for index in range(4))
    running = replace(
        a_running_job(1, "a", old.resources, devices=uuids), time_limit_seconds=5 * HOUR, preemptible=True
    )
    running = replace(running, submitted_at=old.submitted_at)
    world = Simulation(
        a_queue_state(NODES, [running, gpu_job(2, priority_class="interactive")], SchedulingPolicy(order=order))
    )
    world.run(NOW + timedelta(hours=9))
    assert world.started_at == {2: NOW, 1: NOW + timedelta(hours=1)}
    assert len(world.plans) < 9


@MANY
@given(cases(FAIR_SHARE))
@example(a_case(Random(1519), FAIR_SHARE))  # two projects have the next turn, but for rounding errors
def test_points_and_order_match_the_reference(case: Case) -> None:
    snapshot = case.board().snapshot(NOW)
    found = priority_points(snapshot, case.policy, NOW.timestamp())
    assert dict(zip(snapshot.pending["job"].tolist(), found, strict=True)) == pytest.approx(reference_points(case))
    in_turn = snapshot.pending["job"][sort_pending(snapshot, case.policy, NOW.timestamp())].tolist()
    assert in_turn == reference_order(case)
