"""Fractions of devices, and unavailable devices."""

from dataclasses import replace
from datetime import timedelta

from heliostat.models import PlacementRequest, Resources, TaskLayout, TaskPlacement
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
SHARED = a_node("a", gpus=2, splits_devices=True)


def part(gpus: float = 0.5) -> Resources:
    return Resources(1, 10, gpus)


def test_a_gang_of_fractions_starts_as_a_whole_and_fills_shared_devices_first() -> None:
    running = a_running_job(9, "a", part(), devices=("a-1",))
    made = a_plan(a_queue_state((SHARED,), [running, a_job(1, part(), placement=PlacementRequest(tasks=3))]))
    assert [place.devices for place in made.starts[0].places] == [("a-1",), ("a-0",), ("a-0",)]
    four = a_job(1, part(), placement=PlacementRequest(tasks=4))
    assert started(a_plan(a_queue_state((SHARED,), [running, four]))) == {}


def test_a_gang_of_fractions_over_several_nodes_allocates_on_each_what_it_uses_there() -> None:
    nodes = (replace(SHARED, cpus=2), replace(a_node("b", gpus=2, splits_devices=True), cpus=2))
    gang = a_job(1, part(), placement=PlacementRequest(tasks=2, layout=TaskLayout.SPREAD))
    whole = [a_job(number, Resources(1, 10, 1)) for number in (2, 3)]
    made = a_plan(a_queue_state(nodes, [gang, *whole], FIFO_BACKFILL))
    assert set(started(made)) == {1, 2, 3}


def test_an_exclusive_fraction_does_not_share_a_device() -> None:
    running = a_running_job(9, "a", part(), devices=("a-1",))
    alone = a_job(1, part(), placement=PlacementRequest(exclusive=True))
    assert started(a_plan(a_queue_state((SHARED,), [running, alone]))) == {}


def test_a_removed_shared_device_is_not_allocated() -> None:
    gone = a_running_job(9, "a", part(), devices=("pulled-out",))
    assert started(a_plan(a_queue_state((SHARED,), [gone, a_job(1, part())]))) == {1: ("a",)}


def test_a_shared_device_is_free_when_its_last_job_has_ended() -> None:
    one = replace(SHARED, devices=SHARED.devices[:1])
    running = a_running_job(9, "a", part(), devices=("a-0",), time_limit_seconds=HOUR)
    joins = a_job(1, part(), time_limit_seconds=3 * HOUR)
    waits = a_job(2, Resources(1, 10, 1), time_limit_seconds=HOUR)
    made = a_plan(a_queue_state((one,), [running, joins, waits], FIFO_BACKFILL))
    assert started(made) == {1: ("a",)}
    assert [(head.job_id, head.starts_at) for head in made.booked_starts] == [(2, NOW + timedelta(hours=3))]


def test_a_long_fraction_does_not_share_a_device_that_is_booked() -> None:
    nodes = (SHARED,)
    running = [
        a_running_job(8, "a", part(), devices=("a-0",), time_limit_seconds=HOUR),
        a_running_job(9, "a", Resources(1, 10, 1), devices=("a-1",), time_limit_seconds=HOUR),
    ]
    head = a_job(1, Resources(1, 10, 2), time_limit_seconds=HOUR)
    long, short = a_job(2, part(), time_limit_seconds=2 * HOUR), a_job(3, part(), time_limit_seconds=HOUR // 2)
    assert started(a_plan(a_queue_state(nodes, [*running, head, long], FIFO_BACKFILL))) == {}
    gang = replace(long, placement=PlacementRequest(tasks=1, layout=TaskLayout.SPREAD))
    assert started(a_plan(a_queue_state(nodes, [*running, head, gang, short], FIFO_BACKFILL))) in ({}, {3: ("a",)})


def test_a_running_gang_of_fractions_counts_until_its_end() -> None:
    places = (TaskPlacement("a", ("a-0",)), TaskPlacement("a", ("a-0",)))
    gang = a_running_job(9, "a", part(), places=places, devices=("a-0", "a-0"), time_limit_seconds=HOUR)
    gang = replace(gang, placement=PlacementRequest(tasks=2))
    waits = a_job(1, Resources(1, 10, 2), time_limit_seconds=HOUR)
    made = a_plan(a_queue_state((SHARED,), [gang, waits, a_job(2)], FIFO_BACKFILL))
    assert [(head.job_id, head.starts_at) for head in made.booked_starts] == [(1, NOW + timedelta(hours=1))]


def test_a_faulty_device_in_use_is_not_expected_to_become_free() -> None:
    node = a_node("a", gpus=2)
    faulty = replace(node, devices=(replace(node.devices[0], problem="ECC"), node.devices[1]))
    running = [
        a_running_job(8, "a", Resources(1, 10, 1), devices=("a-0",), time_limit_seconds=HOUR),
        a_running_job(9, "a", Resources(1, 10, 1), devices=("a-1",), time_limit_seconds=3 * HOUR),
    ]
    waits = a_job(1, Resources(1, 10, 1), time_limit_seconds=HOUR)
    made = a_plan(a_queue_state((faulty,), [*running, waits, a_job(2)], FIFO_BACKFILL))
    assert [(head.job_id, head.starts_at) for head in made.booked_starts] == [(1, NOW + timedelta(hours=3))]
