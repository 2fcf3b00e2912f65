"""Future availability of resources, and bookings."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from heliostat.models import Job, PlacementRequest, Reservation, Resources
from heliostat.scheduling.availability import expected_ends
from heliostat.scheduling.policy import QueueOrdering, SchedulingPolicy
from unit.scheduling.builders import (
    FIFO_BACKFILL,
    NOW,
    a_job,
    a_node,
    a_plan,
    a_queue_state,
    a_running_job,
    started,
)

HOUR = 3600
SECONDS = NOW.timestamp()


def gpus(count: float) -> Resources:
    return Resources(1, 10, count)


def end_in_hours(job: Job, assumed: float = 24 * HOUR) -> float:
    running = a_queue_state((a_node("a", gpus=4),), [job]).snapshot(NOW).running
    return float((expected_ends(running, assumed, SECONDS)[0] - SECONDS) / HOUR)


@pytest.mark.parametrize(
    ("hours_ago", "fields", "expected"),
    [
        (1, {"time_limit_seconds": 4 * HOUR}, 3),
        (5, {"time_limit_seconds": 4 * HOUR}, 0),  # it is being stopped
        (1, {}, 23),
        (25, {}, 23),  # exceeded the assumed limit: it doubles
        (50, {}, 46),
        (3, {"time_limit_seconds": 4 * HOUR, "overtime": True}, 1),
        (5, {"time_limit_seconds": 4 * HOUR, "overtime": True}, 24),
        (1, {"time_limit_seconds": 4 * HOUR, "stop_requested": "preempt"}, 10 / HOUR),
    ],
)
def test_a_job_releases_its_resources_at_its_time_limit(hours_ago: float, fields: dict, expected: float) -> None:  # type: ignore[type-arg]
    job = replace(a_running_job(9, "a", **fields), started_at=NOW - timedelta(hours=hours_ago))
    assert end_in_hours(job) == pytest.approx(expected)


def heads(board, now=NOW) -> list[tuple[int, float, tuple[str, ...]]]:  # type: ignore[no-untyped-def]
    return [
        (head.job_id, (head.starts_at - NOW) / timedelta(hours=1), head.nodes)
        for head in a_plan(board, now).booked_starts
    ]


def busy(number: int, node: str, *devices: int, hours: float) -> Job:
    uuids = tuple(f"{node}-{index}" for index in devices)
    return a_running_job(number, node, gpus(len(uuids)), devices=uuids, time_limit_seconds=int(hours * HOUR))


LAST = a_job(99)  # fits, so that the queue is tried


def test_a_job_is_booked_where_enough_is_free_first() -> None:
    nodes = (a_node("a", gpus=4), a_node("b", gpus=4))
    jobs = [busy(7, "a", 0, 1, hours=1), busy(8, "a", 2, 3, hours=5), busy(9, "b", 0, 1, hours=3)]
    waits = a_job(1, gpus(4), time_limit_seconds=HOUR)
    assert heads(a_queue_state(nodes, [*jobs, waits, LAST], FIFO_BACKFILL)) == [(1, 3.0, ("b",))]
    assert heads(a_queue_state(nodes, [*jobs, replace(waits, resources=gpus(3)), LAST])) == [(1, 3.0, ("b",))]


def test_a_gang_is_booked_for_the_time_at_which_all_tasks_fit() -> None:
    nodes = tuple(a_node(name, gpus=2) for name in "abc")
    jobs = [busy(7, "a", 0, 1, hours=1), busy(8, "b", 0, 1, hours=2), busy(9, "c", 0, 1, hours=3)]
    gang = a_job(1, gpus(2), placement=PlacementRequest(tasks=2), time_limit_seconds=HOUR)
    assert heads(a_queue_state(nodes, [*jobs, gang, LAST])) == [(1, 2.0, ("a", "b"))]


def test_a_gang_is_not_booked_into_a_reservation_that_begins_after_some_of_its_nodes_are_free() -> None:
    nodes = (a_node("a", gpus=2), a_node("b", gpus=2))
    running = busy(9, "b", 0, 1, hours=1)
    gang = a_job(1, gpus(2), placement=PlacementRequest(tasks=2), time_limit_seconds=HOUR)
    starts_at = NOW + timedelta(hours=1, minutes=30)
    window = Reservation("repair", ("a",), starts_at, NOW + timedelta(hours=5))
    board = a_queue_state(nodes, [running, gang, LAST], FIFO_BACKFILL, reservations=(window,))
    assert heads(board) == [(1, 5.0, ("a", "b"))]


def test_a_job_too_long_to_end_before_a_reservation_is_booked_after_it() -> None:
    node = a_node("a", gpus=2)
    window = Reservation("repair", ("a",), NOW + timedelta(hours=3), NOW + timedelta(hours=5))
    jobs = [busy(9, "a", 0, 1, hours=1), LAST]
    short, long = (a_job(1, gpus(1), time_limit_seconds=hours * HOUR) for hours in (2, 3))
    assert heads(a_queue_state((node,), [*jobs, short], FIFO_BACKFILL, reservations=(window,))) == [
        (1, 1.0, ("a",))
    ]
    assert heads(a_queue_state((node,), [*jobs, long], FIFO_BACKFILL, reservations=(window,))) == [
        (1, 5.0, ("a",))
    ]


def test_a_second_booking_does_not_use_the_resources_of_the_first() -> None:
    node = a_node("a", cpus=4, gpus=3)
    two = SchedulingPolicy(order=QueueOrdering.FIFO, backfill_reservations=2)
    running = busy(9, "a", 0, 1, hours=1)
    first = a_job(1, gpus(2), time_limit_seconds=60)
    second = a_job(2, Resources(4, 10, 2), time_limit_seconds=2 * HOUR)
    long = a_job(3, gpus(1), time_limit_seconds=4 * HOUR)
    assert started(a_plan(a_queue_state((node,), [running, first, second, long], two))) == {}
    assert started(a_plan(a_queue_state((node,), [running, first, second, long], FIFO_BACKFILL))) == {3: ("a",)}


def test_two_jobs_of_the_same_shape_are_both_booked() -> None:
    jobs = [busy(9, "a", 0, 1, hours=1), *(a_job(number, gpus(2), time_limit_seconds=HOUR) for number in (1, 2))]
    board = a_queue_state(
        (a_node("a", gpus=2),), [*jobs, LAST], SchedulingPolicy(order=QueueOrdering.FIFO, backfill_reservations=2)
    )
    assert heads(board) == [(1, 1.0, ("a",)), (2, 2.0, ("a",))]


def test_nothing_is_booked_for_a_scavenger() -> None:
    jobs = [busy(9, "a", 0, hours=1), a_job(1, gpus(1), priority_class="scavenger"), LAST]
    assert heads(a_queue_state((a_node("a", gpus=1),), jobs)) == []


def test_expected_ends_are_never_in_the_past() -> None:
    board = a_queue_state((a_node("a"),), [replace(a_running_job(9, "a"), started_at=NOW - timedelta(days=99))])
    assert np.all(expected_ends(board.snapshot(NOW).running, 60.0, SECONDS) >= SECONDS)
