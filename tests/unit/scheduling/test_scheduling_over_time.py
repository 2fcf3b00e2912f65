"""What holds over time: nobody waits for ever, and those who slip through delay nobody before them."""

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.models import Job, PlacementRequest, Resources
from heliostat.scheduling.capacity import is_feasible
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.policy import POLICY_PRESETS, QueueOrdering
from unit.scheduling.cases import ALL, MANY, Case, Wishes, cases
from unit.scheduling.made_up import FIFO_BACKFILL, NOW, a_board, a_job, a_node
from unit.scheduling.passing_time import World, as_long_as_it_may

HOUR = 3600
FAR = NOW + timedelta(days=60)
# Nobody in front of the blocked job is held back by something else than room, and may go first later.
HONEST = replace(ALL, accounts=False, unlimited=False, stops=False, classes=False, arrays=False, backfill=True)
HONEST = replace(HONEST, orders=(QueueOrdering.FIFO,))
ENDLESS = Wishes(unlimited=False, accounts=False)


def a_world(case: Case, takes=as_long_as_it_may) -> World:  # type: ignore[no-untyped-def]
    return World(case.board(), takes)


def feasible(case: Case) -> set[int]:
    machines = case.board().node_table
    shapes = {job.id: JobShape(job.resources, job.placement, case.data_class(job)) for job in case.pending}
    return {number for number, shape in shapes.items() if is_feasible(shape, machines)}


@MANY
@given(cases(ENDLESS))
def test_a_queue_to_which_nothing_is_added_drains(case: Case) -> None:
    world = a_world(case)
    world.run(FAR)
    assert feasible(case) <= world.ended
    assert world.board.snapshot(world.now).held_devices == {}


@MANY
@given(cases(HONEST), st.integers(0, 9))
def test_the_first_that_is_blocked_starts_no_later_than_was_booked_for_it(case: Case, seed: int) -> None:
    """Jobs take any time up to their limit. Only the first is promised this: it may start sooner or elsewhere than
    booked, in the room of the second."""
    random = Random(seed)
    parts = {job.id: random.choice([0.1, 0.5, 0.9, 1.0, 1.0]) for job in case.jobs}
    world = a_world(case, lambda job: as_long_as_it_may(job) * parts[job.id])
    world.run(FAR)
    assert late(world) == []


def late(world: World) -> list[str]:
    """Who was the first that is blocked, and started later than it was told then."""
    promised: dict[int, datetime] = {}
    found = []
    for _, made in world.plans:
        for head in made.booked_starts[:1]:
            promised.setdefault(head.job_id, head.starts_at)
    for number, at in promised.items():
        begun = world.started_at.get(number)
        if begun is None or begun > at + timedelta(seconds=1):
            found.append(f"job {number} was to start by {at} and did at {begun}")
    return found


@MANY
@given(cases(replace(HONEST, max_reserved=1, reservations=0, parts=False)))
def test_the_first_that_is_blocked_starts_as_if_those_behind_it_were_not_there(case: Case) -> None:
    """Holds when jobs take just their limit: one that ends early may leave room that somebody behind has taken.
    For parts whole devices are booked; without those behind, a shared one might have had room sooner."""
    world = a_world(case)
    world.run(FAR)
    heads = world.plans[0][1].booked_starts
    if not heads:
        return
    head = heads[0].job_id
    alone = a_world(replace(case, pending=tuple(job for job in case.pending if job.id <= head)))
    alone.run(FAR)
    assert world.started_at[head] == alone.started_at[head]


@pytest.mark.parametrize("preset", ["easy", "fairshare", "las"])
@pytest.mark.parametrize(
    "large",
    [
        a_job(1, Resources(1, 10, 4), user="eve", project="large", time_limit_seconds=HOUR),
        a_job(
            1, Resources(1, 10, 2), placement=PlacementRequest(tasks=4), project="large", time_limit_seconds=HOUR
        ),
        a_job(1, placement=PlacementRequest(exclusive=True), project="large", time_limit_seconds=HOUR),
    ],
    ids=["all devices of a node", "a gang", "alone on a node"],
)
def test_a_stream_of_small_jobs_does_not_keep_a_large_one_waiting_for_ever(large: Job, preset: str) -> None:
    """The small ones alone keep the cluster busy."""
    nodes = (a_node("a", gpus=4), a_node("b", gpus=4))
    world = World(a_board(nodes, [], POLICY_PRESETS[preset]))
    small = Resources(1, 10, 1)
    stream = [
        a_job(number, small, submitted_at=NOW + timedelta(minutes=16 * (number - 10)), time_limit_seconds=HOUR)
        for number in range(2, 600)
    ]
    world.arrive([large, *(replace(job, submitted_at=max(job.submitted_at, NOW)) for job in stream)])
    world.arrive(replace(job, id=job.id + 1000, user="bob") for job in stream)
    world.run(NOW + timedelta(hours=72))
    assert world.started_at[1] <= NOW + timedelta(hours=24)


def test_two_gangs_that_need_everything_run_one_after_the_other() -> None:
    nodes = tuple(a_node(name, gpus=2) for name in "abc")
    gangs = [
        a_job(number, Resources(1, 10, 2), placement=PlacementRequest(tasks=3), time_limit_seconds=HOUR)
        for number in (1, 2)
    ]
    world = World(a_board(nodes, gangs, FIFO_BACKFILL))
    world.run(FAR)
    assert world.started_at == {1: NOW, 2: NOW + timedelta(hours=1)}
