"""Preemption: which jobs are stopped, and which are not."""

from dataclasses import replace
from datetime import timedelta

import pytest

from heliostat.models import Job, PlacementRequest, Reservation, Resources, TaskPlacement
from heliostat.scheduling.policy import SchedulingPolicy
from unit.scheduling.builders import NOW, a_job, a_node, a_plan, a_queue_state, a_running_job, started
from unit.scheduling.simulated_time import Simulation

HOUR = 3600


def gpus(count: float) -> Resources:
    return Resources(1, 10, count)


def scavenger(number: int, node: str, *devices: int, minutes: float = 30, **fields: object) -> Job:
    uuids = tuple(f"{node}-{index}" for index in devices)
    job = a_running_job(number, node, gpus(len(uuids)), devices=uuids, priority_class="scavenger")
    return replace(
        job, **{"started_at": NOW - timedelta(minutes=minutes), "time_limit_seconds": 99 * HOUR} | fields
    )


def stopped(*jobs: Job, nodes: tuple = (a_node("a", gpus=4),), **more: object) -> list[int]:  # type: ignore[type-arg]
    return [stop.job.id for stop in a_plan(a_queue_state(nodes, jobs, **more)).stops]  # type: ignore[arg-type]


WAITING = a_job(1, gpus(2), time_limit_seconds=HOUR)


def test_one_job_that_frees_enough_is_preempted_rather_than_two_that_lose_more() -> None:
    small = [scavenger(7, "a", 0, minutes=20), scavenger(8, "a", 1, minutes=30)]
    assert stopped(WAITING, *small, scavenger(9, "a", 2, 3, minutes=21)) == [9]
    assert stopped(WAITING, *small, scavenger(9, "a", 2, 3, minutes=40)) == [7, 8]


def test_no_more_jobs_than_needed_are_preempted() -> None:
    jobs = [scavenger(7, "a", 0, minutes=1), scavenger(8, "a", 1, 2, 3, minutes=10)]
    assert stopped(WAITING, *jobs) == [8]


def half(number: int, device: int, name: str = "scavenger", minutes: float = 30) -> Job:
    job = replace(scavenger(number, "a", device, minutes=minutes), resources=gpus(0.5))
    return replace(job, priority_class=name)


def test_all_jobs_that_share_a_gpu_are_preempted_for_a_job_that_needs_it() -> None:
    nodes = (a_node("a", cpus=20, gpus=9, splits_devices=True),)
    busy = scavenger(30, "a", 0, 1, 2, 3, 4, priority_class="normal")
    halves = [half(number, number // 2, minutes=number) for number in range(10, 18)]  # on devices 5 to 8
    assert stopped(WAITING, busy, *halves, nodes=nodes) == [10, 11, 12, 13]


def test_a_gpu_that_a_job_of_the_same_class_shares_is_not_freed() -> None:
    nodes = (a_node("a", gpus=2, splits_devices=True),)
    others = [half(10, 0), half(11, 0), half(12, 1), half(13, 1, name="normal")]
    assert stopped(WAITING, *others, nodes=nodes) == []
    assert stopped(replace(WAITING, resources=gpus(1)), *others, nodes=nodes) == [10, 11]


def test_no_job_is_preempted_for_resources_reserved_for_others() -> None:
    running = scavenger(9, "a", 0, 1, 2, 3, project="course")
    course = Reservation("course", ("a",), NOW - timedelta(hours=1), NOW + timedelta(hours=3), project="course")
    assert stopped(WAITING, running) == [9]
    assert stopped(WAITING, running, reservations=(course,)) == []
    soon = replace(course, starts_at=NOW + timedelta(minutes=30))
    assert stopped(WAITING, running, reservations=(soon,)) == []
    later = replace(course, starts_at=NOW + timedelta(hours=2))
    assert stopped(WAITING, running, reservations=(later,)) == [9]


def test_no_job_is_preempted_for_a_faulty_device() -> None:
    node = a_node("a", gpus=2)
    faulty = replace(node, devices=(replace(node.devices[0], problem="ECC"), node.devices[1]))
    other = a_running_job(8, "a", gpus(1), devices=("a-1",), time_limit_seconds=HOUR)
    one = replace(WAITING, resources=gpus(1))
    assert stopped(one, scavenger(9, "a", 0), other, nodes=(node,)) == [9]
    assert stopped(one, scavenger(9, "a", 0), other, nodes=(faulty,)) == []


def test_no_job_is_preempted_for_resources_that_become_free_within_a_minute() -> None:
    ending = a_running_job(8, "a", gpus(2), devices=("a-2", "a-3"), time_limit_seconds=59)
    assert stopped(WAITING, scavenger(9, "a", 0, 1), ending) == []
    assert stopped(WAITING, scavenger(9, "a", 0, 1), replace(ending, time_limit_seconds=61)) == [9]


def test_no_job_is_preempted_for_a_job_blocked_by_a_quota_or_without_blocked_jobs() -> None:
    assert stopped(scavenger(9, "a", 0, 1)) == []
    assert stopped(replace(WAITING, resources=gpus(8)), scavenger(9, "a", 0, 1, 2, 3)) == []


def test_resources_freed_for_the_first_job_are_not_used_for_the_second() -> None:
    jobs = [scavenger(8, "a", 0, 1), scavenger(9, "a", 2, 3, minutes=40)]
    second = replace(WAITING, id=2)
    assert stopped(WAITING, second, *jobs, policy=SchedulingPolicy(backfill_reservations=2)) == [8, 9]
    assert stopped(WAITING, second, *jobs, policy=SchedulingPolicy(backfill_reservations=1)) == [8]


def test_a_gang_preempts_on_several_nodes_and_a_preempted_gang_leaves_all_its_nodes() -> None:
    nodes = (a_node("a", gpus=2), a_node("b", gpus=2))
    gang = replace(WAITING, placement=PlacementRequest(tasks=2))
    jobs = [scavenger(8, "a", 0, 1), scavenger(9, "b", 0, 1)]
    assert stopped(gang, *jobs, nodes=nodes) == [8, 9]
    both = replace(
        scavenger(8, "a", 0, 1),
        placement=PlacementRequest(tasks=2),
        places=(TaskPlacement("a", ("a-0", "a-1")), TaskPlacement("b", ("b-0", "b-1"))),
        devices=("a-0", "a-1", "b-0", "b-1"),
    )
    assert stopped(WAITING, both, nodes=nodes) == [8]


def test_the_lost_work_of_a_job_without_gpus_counts_by_its_cpus() -> None:
    node = a_node("a", cpus=2)
    busy = a_running_job(8, "a", priority_class="scavenger", time_limit_seconds=99 * HOUR)
    older = replace(busy, id=9, started_at=NOW - timedelta(hours=1))
    assert stopped(a_job(1, time_limit_seconds=HOUR), busy, older, nodes=(node,)) == [8]


def test_the_protection_of_a_preempted_job_doubles_each_time() -> None:
    policy = SchedulingPolicy(protection_seconds=600)

    def goes(minutes: float, preemptions: int, **fields: object) -> bool:
        running = scavenger(9, "a", 0, 1, 2, 3, minutes=minutes, preemptions=preemptions, **fields)
        return stopped(WAITING, running, policy=policy) == [9]

    assert goes(0, preemptions=0)
    assert [goes(minutes, preemptions=1) for minutes in (9, 10)] == [False, True]
    assert [goes(minutes, preemptions=2) for minutes in (19, 20)] == [False, True]
    assert [goes(minutes, preemptions=4) for minutes in (79, 80)] == [False, True]
    saved = {"checkpointed_at": NOW - timedelta(minutes=1)}
    assert [goes(minutes, preemptions=4, **saved) for minutes in (9, 10)] == [False, True]
    before = {"checkpointed_at": NOW - timedelta(minutes=30)}
    assert not goes(20, preemptions=4, **before), "that was in an earlier attempt"
    assert goes(10**6, preemptions=10**6) is False


def test_a_plan_wakes_up_when_the_protection_of_a_job_ends() -> None:
    running = scavenger(9, "a", 0, 1, 2, 3, minutes=4, preemptions=1)
    made = a_plan(
        a_queue_state((a_node("a", gpus=4),), [running, WAITING], SchedulingPolicy(protection_seconds=600))
    )
    assert (made.stops, made.wake_at) == ((), NOW + timedelta(minutes=6))


@pytest.mark.parametrize("minutes", [1, 7, 45])
def test_repeated_preemption_does_not_prevent_jobs_from_completing(minutes: int) -> None:
    """A job of five hours without checkpoints, and a user who submits and cancels every few minutes."""
    victim = replace(scavenger(9, "a", 0, 1, 2, 3, minutes=0), time_limit_seconds=5 * HOUR)
    world = Simulation(a_queue_state((a_node("a", gpus=4),), [victim]), lambda job: 5 * HOUR if job.id == 9 else 1)
    attacks = [
        replace(WAITING, id=10 + number, submitted_at=NOW + timedelta(minutes=minutes * number))
        for number in range(1, 48 * 60 // minutes)
    ]
    world.arrive(replace(job, priority_class="interactive") for job in attacks)
    world.run(NOW + timedelta(hours=48))
    assert 9 in world.ended


@pytest.mark.parametrize("why", ["preempt", "overtime"])
def test_the_message_names_the_job_that_needs_the_resources(why: str) -> None:
    overtime = {"overtime": True, "time_limit_seconds": 60, "priority_class": "normal"}
    running = scavenger(9, "a", 0, 1, 2, 3, **(overtime if why == "overtime" else {}))
    made = a_plan(a_queue_state((a_node("a", gpus=4),), [running, WAITING]))
    assert started(made) == {}
    words = {
        "preempt": "job 1 of class normal needs its resources",
        "overtime": "time limit reached, and job 1 needs its resources",
    }
    assert [(stop.kind, stop.message, stop.for_job_id) for stop in made.stops] == [(why, words[why], 1)]


def test_a_blocked_job_without_a_booking_may_preempt_too() -> None:
    nodes = (a_node("a", gpus=4), a_node("b", gpus=4))
    lasting = a_running_job(
        8, "a", Resources(1, 10, 4), devices=("a-0", "a-1", "a-2", "a-3"), time_limit_seconds=99 * 3600
    )
    scavenger = a_running_job(
        9,
        "b",
        Resources(1, 10, 1),
        devices=("b-0",),
        time_limit_seconds=99 * 3600,
        priority_class="scavenger",
    )
    others = [
        a_running_job(number, "b", Resources(1, 10, 1), devices=(f"b-{number - 9}",), time_limit_seconds=99 * 3600)
        for number in (10, 11, 12)
    ]
    large = a_job(1, Resources(1, 10, 4), priority=5, priority_everywhere=True)
    small = a_job(2, Resources(1, 10, 1), priority_class="interactive", time_limit_seconds=3600)
    made = a_plan(a_queue_state(nodes, [lasting, scavenger, *others, large, small]))
    assert [head.job_id for head in made.booked_starts] == [1]
    assert [(stop.job.id, stop.for_job_id) for stop in made.stops] == [(9, 2)]
