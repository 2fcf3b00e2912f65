"""Parts of devices, and devices that are out of order."""

from dataclasses import replace
from datetime import timedelta

from heliostat.models import PlacementRequest, Resources, TaskLayout, TaskPlacement
from unit.scheduling.made_up import FIFO_BACKFILL, NOW, a_board, a_job, a_node, a_plan, a_running_job, started

HOUR = 3600
SHARED = a_node("a", gpus=2, splits_devices=True)


def part(gpus: float = 0.5) -> Resources:
    return Resources(1, 10, gpus)


def test_a_gang_of_parts_starts_whole_and_fills_what_is_shared_first() -> None:
    running = a_running_job(9, "a", part(), devices=("a-1",))
    made = a_plan(a_board((SHARED,), [running, a_job(1, part(), placement=PlacementRequest(tasks=3))]))
    assert [place.devices for place in made.starts[0].places] == [("a-1",), ("a-0",), ("a-0",)]
    four = a_job(1, part(), placement=PlacementRequest(tasks=4))
    assert started(a_plan(a_board((SHARED,), [running, four]))) == {}


def test_a_gang_of_parts_over_several_nodes_takes_from_each_what_it_uses_there() -> None:
    nodes = (replace(SHARED, cpus=2), replace(a_node("b", gpus=2, splits_devices=True), cpus=2))
    gang = a_job(1, part(), placement=PlacementRequest(tasks=2, layout=TaskLayout.SPREAD))
    whole = [a_job(number, Resources(1, 10, 1)) for number in (2, 3)]
    made = a_plan(a_board(nodes, [gang, *whole], FIFO_BACKFILL))
    assert set(started(made)) == {1, 2, 3}


def test_a_part_that_wants_to_be_alone_does_not_join_others() -> None:
    running = a_running_job(9, "a", part(), devices=("a-1",))
    alone = a_job(1, part(), placement=PlacementRequest(exclusive=True))
    assert started(a_plan(a_board((SHARED,), [running, alone]))) == {}


def test_a_shared_device_that_is_no_longer_there_is_not_handed_out() -> None:
    gone = a_running_job(9, "a", part(), devices=("pulled-out",))
    assert started(a_plan(a_board((SHARED,), [gone, a_job(1, part())]))) == {1: ("a",)}


def test_a_shared_device_is_free_when_the_last_of_those_on_it_has_ended() -> None:
    one = replace(SHARED, devices=SHARED.devices[:1])
    running = a_running_job(9, "a", part(), devices=("a-0",), time_limit_seconds=HOUR)
    joins = a_job(1, part(), time_limit_seconds=3 * HOUR)
    waits = a_job(2, Resources(1, 10, 1), time_limit_seconds=HOUR)
    made = a_plan(a_board((one,), [running, joins, waits], FIFO_BACKFILL))
    assert started(made) == {1: ("a",)}
    assert [(head.job_id, head.starts_at) for head in made.booked_starts] == [(2, NOW + timedelta(hours=3))]


def test_a_long_part_does_not_join_a_device_that_is_kept_for_a_blocked_job() -> None:
    nodes = (SHARED,)
    running = [
        a_running_job(8, "a", part(), devices=("a-0",), time_limit_seconds=HOUR),
        a_running_job(9, "a", Resources(1, 10, 1), devices=("a-1",), time_limit_seconds=HOUR),
    ]
    head = a_job(1, Resources(1, 10, 2), time_limit_seconds=HOUR)
    long, short = a_job(2, part(), time_limit_seconds=2 * HOUR), a_job(3, part(), time_limit_seconds=HOUR // 2)
    assert started(a_plan(a_board(nodes, [*running, head, long], FIFO_BACKFILL))) == {}
    gang = replace(long, placement=PlacementRequest(tasks=1, layout=TaskLayout.SPREAD))
    assert started(a_plan(a_board(nodes, [*running, head, gang, short], FIFO_BACKFILL))) in ({}, {3: ("a",)})


def test_a_gang_of_parts_that_runs_is_counted_until_its_end() -> None:
    places = (TaskPlacement("a", ("a-0",)), TaskPlacement("a", ("a-0",)))
    gang = a_running_job(9, "a", part(), places=places, devices=("a-0", "a-0"), time_limit_seconds=HOUR)
    gang = replace(gang, placement=PlacementRequest(tasks=2))
    waits = a_job(1, Resources(1, 10, 2), time_limit_seconds=HOUR)
    made = a_plan(a_board((SHARED,), [gang, waits, a_job(2)], FIFO_BACKFILL))
    assert [(head.job_id, head.starts_at) for head in made.booked_starts] == [(1, NOW + timedelta(hours=1))]


def test_a_faulty_device_that_is_still_held_is_not_awaited() -> None:
    node = a_node("a", gpus=2)
    faulty = replace(node, devices=(replace(node.devices[0], problem="ECC"), node.devices[1]))
    running = [
        a_running_job(8, "a", Resources(1, 10, 1), devices=("a-0",), time_limit_seconds=HOUR),
        a_running_job(9, "a", Resources(1, 10, 1), devices=("a-1",), time_limit_seconds=3 * HOUR),
    ]
    waits = a_job(1, Resources(1, 10, 1), time_limit_seconds=HOUR)
    made = a_plan(a_board((faulty,), [*running, waits, a_job(2)], FIFO_BACKFILL))
    assert [(head.job_id, head.starts_at) for head in made.booked_starts] == [(1, NOW + timedelta(hours=3))]
