"""Properties over time: no job starves, and backfilled jobs delay no booking."""

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.models import Job, PlacementRequest, Resources
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.planned_capacity import is_feasible
from heliostat.scheduling.policy import POLICY_PRESETS, QueueOrdering
from unit.scheduling.builders import FIFO_BACKFILL, NOW, a_job, a_node, a_queue_state
from unit.scheduling.random_cases import ALL, MANY, Case, CaseOptions, cases
from unit.scheduling.simulated_time import Simulation, full_time_limit

HOUR = 3600
FAR = NOW + timedelta(days=60)
# Nobody in front of the blocked job is held back by something else than room, and may go first later.
HONEST = replace(ALL, accounts=False, unlimited=False, stops=False, classes=False, arrays=False, backfill=True)
HONEST = replace(HONEST, orders=(QueueOrdering.FIFO,))
ENDLESS = CaseOptions(unlimited=False, accounts=False)


def a_world(case: Case, takes=full_time_limit) -> Simulation:  # type: ignore[no-untyped-def]
    return Simulation(case.board(), takes)


def feasible(case: Case) -> set[int]:
    machines = case.board().node_table
    shapes = {job.id: JobShape(job.resources, job.placement, case.data_class(job)) for job in case.pending}
    return {number for number, shape in shapes.items() if is_feasible(shape, machines)}


@MANY
@given(cases(ENDLESS))
def test_a_queue_without_new_jobs_becomes_empty(case: Case) -> None:
    world = a_world(case)
    world.run(FAR)
    assert feasible(case) <= world.ended
    assert world.board.snapshot(world.now).held_devices == {}


@MANY
@given(cases(HONEST), st.integers(0, 9))
def test_the_first_blocked_job_starts_no_later_than_booked(case: Case, seed: int) -> None:
    """Jobs take any time up to their limit. Guaranteed for the first job only: it may start earlier or elsewhere
    than booked, with the resources of the second."""
    random = Random(seed)
    parts = {job.id: random.choice([0.1, 0.5, 0.9, 1.0, 1.0]) for job in case.jobs}
    world = a_world(case, lambda job: full_time_limit(job) * parts[job.id])
    world.run(FAR)
    assert late(world) == []


def late(world: Simulation) -> list[str]:
    """Jobs that were the first blocked one and started later than booked then."""
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
def test_the_first_blocked_job_starts_as_if_no_job_were_behind_it(case: Case) -> None:
    """Holds if jobs use their full limits: resources of a job that ends early may be used by a job further back.
    Bookings of fractions use whole devices; without other jobs, a shared device might have been free earlier."""
    world = a_world(case)
    world.run(FAR)
    heads = world.plans[0][1].booked_starts
    if not heads:
        return
    head = heads[0].job_id
    alone = a_world(replace(case, pending=tuple(job for job in case.pending if job.id <= head)))
    alone.run(FAR)
    assert world.started_at[head] == alone.started_at[head]


KEPT = replace(HONEST, orders=(QueueOrdering.FAIR_SHARE,), max_reserved=1, reservations=0, bookings=False)


@MANY
@given(cases(KEPT), cases(KEPT), st.integers(0, 9))
def test_a_kept_booking_never_moves_later_whatever_arrives(case: Case, later: Case, seed: int) -> None:
    """Jobs end within their limits, no node fails and no job of a higher class arrives."""
    random = Random(seed)
    parts = {number: random.choice([0.1, 0.5, 0.9, 1.0]) for number in range(1000)}
    world = a_world(case, lambda job: full_time_limit(job) * parts[job.id % 1000])
    arrivals = [replace(job, id=job.id + 500, waited_seconds=0) for job in later.pending]
    world.arrive(replace(job, submitted_at=NOW + timedelta(minutes=random.randint(1, 240))) for job in arrivals)
    world.run(FAR)
    kept: dict[int, datetime] = {}
    for at, made in world.plans:
        promised = {head.job_id: head.starts_at for head in made.booked_starts}
        assert not made.withdrawn_bookings
        for number, before in kept.items():
            if world.started_at[number] > at:
                assert promised[number] <= before + timedelta(seconds=1)
        kept = {number: promised[number] for number in {*kept, *made.new_bookings} if number in promised}


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
def test_a_stream_of_small_jobs_does_not_starve_a_large_one(large: Job, preset: str) -> None:
    """The small jobs alone would use the whole cluster."""
    nodes = (a_node("a", gpus=4), a_node("b", gpus=4))
    world = Simulation(a_queue_state(nodes, [], POLICY_PRESETS[preset]))
    small = Resources(1, 10, 1)
    stream = [
        a_job(number, small, submitted_at=NOW + timedelta(minutes=16 * (number - 10)), time_limit_seconds=HOUR)
        for number in range(2, 600)
    ]
    world.arrive([large, *(replace(job, submitted_at=max(job.submitted_at, NOW)) for job in stream)])
    world.arrive(replace(job, id=job.id + 1000, user="bob") for job in stream)
    world.run(NOW + timedelta(hours=72))
    assert world.started_at[1] <= NOW + timedelta(hours=24)


@pytest.mark.parametrize("project", ["default", "other"])
def test_the_first_job_of_a_new_user_starts_before_the_next_of_a_flood(project: str) -> None:
    world = Simulation(a_queue_state((a_node("a", gpus=4),), []), takes=lambda job: 300.0)
    one_gpu = {"resources": Resources(1, 10, 1), "time_limit_seconds": 1800}
    world.arrive(a_job(number, user="ann", **one_gpu) for number in range(1, 401))
    late = NOW + timedelta(hours=2, seconds=1)
    world.arrive(a_job(1000 + n, user="new", project=project, submitted_at=late, **one_gpu) for n in (0, 1))
    world.run(NOW + timedelta(hours=4))
    at_once = NOW + timedelta(hours=2, minutes=5)
    assert world.started_at[1000] == at_once == min(at for at in world.started_at.values() if at > late)
    has_own_share = project == "other"  # otherwise the second job has no advantage
    assert (world.started_at.get(1001) == at_once) == has_own_share


def test_two_gangs_that_need_everything_run_one_after_the_other() -> None:
    nodes = tuple(a_node(name, gpus=2) for name in "abc")
    gangs = [
        a_job(number, Resources(1, 10, 2), placement=PlacementRequest(tasks=3), time_limit_seconds=HOUR)
        for number in (1, 2)
    ]
    world = Simulation(a_queue_state(nodes, gangs, FIFO_BACKFILL))
    world.run(FAR)
    assert world.started_at == {1: NOW, 2: NOW + timedelta(hours=1)}
