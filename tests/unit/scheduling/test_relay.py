"""Who takes over from whom, without another plan."""

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.models import Job, JobState, NodeState, Placement, Quota, Resources
from heliostat.scheduling.accounts import Accounts
from heliostat.scheduling.board import Board
from heliostat.scheduling.plan import plan
from heliostat.scheduling.relay import GOOD_SECONDS, Relay, relay_after
from unit.scheduling.cases import MANY, Case, Wishes, a_case
from unit.scheduling.made_up import NOW, SMALL, a_board, a_job, a_node, a_plan, started

SOON = NOW + timedelta(seconds=GOOD_SECONDS / 2)


def followed(board: Board) -> Relay:
    """Carry out a plan, and what can be followed after it."""
    snapshot = board.snapshot(NOW)
    made = plan(snapshot, board.policy, NOW)
    for start in made.starts:
        values = {"node": start.node, "devices": start.devices, "attempt": 1}
        board.put(replace(start.job, state=JobState.STARTING, **values), NOW)  # type: ignore[arg-type]
    return relay_after(made, snapshot, board.policy, NOW)


def a_crowd(random: Random) -> Case:
    """A made-up cluster in which nearly everybody who waits is alike."""
    few = Wishes(
        running=3, parts=False, accounts=random.random() < 0.1, reservations=0, stops=False, classes=False
    )
    case = a_case(random, few)
    plain = Resources(random.randint(1, 3), random.choice((100, 5000)), 0 if random.random() < 0.9 else 1)
    first = a_job(1, plain, project=random.choice(("red", "blue")), priority=random.randint(-1, 1))
    count = random.randint(1, 30)
    crowd = [replace(first, id=1 + number, priority=random.choice((0, 0, 1))) for number in range(count)]
    return replace(case, pending=(*crowd, *(case.pending[:1] if random.random() < 0.2 else ())))


@MANY
@given(st.integers(0, 2**48))
def test_whatever_is_followed_is_what_a_plan_would_say(seed: int) -> None:
    random = Random(seed)
    board = a_crowd(random).board()
    relay = followed(board)
    running = [job for job in board.jobs.values() if job.state is JobState.STARTING]
    while running and relay.is_good(SOON):
        ended = [running.pop(random.randrange(len(running))) for _ in range(min(len(running), 2))]
        expected = started(plan(board.snapshot(SOON, [job.id for job in ended]), board.policy, SOON))
        starts = relay.starts_after(ended)
        if starts is None:
            return
        assert [start.job.id for start in starts] == list(expected)
        assert sorted((start.node,) for start in starts) == sorted(expected.values())
        for job in ended:
            board.put(replace(job, state=JobState.COMPLETED, started_at=NOW, ended_at=SOON), SOON)
        running += [replace(start.job, state=JobState.STARTING, node=start.node) for start in starts]
        for job in running:
            board.put(job, SOON)


@MANY
@given(st.integers(0, 2**48))
def test_nobody_starts_because_one_like_those_who_wait_has_come(seed: int) -> None:
    random = Random(seed)
    board = a_crowd(random).board()
    relay = followed(board)
    last = max(board.jobs)
    newcomer = replace(board.jobs[last], id=last + 1, state=JobState.PENDING, submitted_at=SOON)
    if relay.is_good(SOON) and relay.let_join([newcomer], SOON):
        board.put(newcomer, SOON)
        assert started(a_plan(board, SOON)) == {}


def two_cpus(*jobs: Job) -> Board:
    return a_board((a_node(cpus=2),), jobs)


def test_the_first_in_line_takes_the_place_of_the_one_that_ended() -> None:
    board = two_cpus(*(a_job(number) for number in range(1, 6)))
    relay = followed(board)
    starts = relay.starts_after([board.jobs[1], board.jobs[2]])
    assert starts is not None
    assert [(start.job.id, start.node) for start in starts] == [(3, "a"), (4, "a")]


def test_who_comes_later_follows_those_who_wait() -> None:
    board = two_cpus(*(a_job(number) for number in range(1, 4)))
    relay = followed(board)
    assert relay.let_join([a_job(4, submitted_at=SOON)], SOON)
    starts = relay.starts_after([board.jobs[1], board.jobs[2]])
    assert starts is not None
    assert [start.job.id for start in starts] == [3, 4]


@pytest.mark.parametrize(
    "other",
    [
        {"user": "bob"},
        {"priority": 5},
        {"priority_class": "urgent"},
        {"time_limit_seconds": 60},
        {"resources": Resources(2, 100)},
        {"placement": Placement(tasks=2)},
        {"array_id": 4},
        {"parents_left": 1},
        {"begin_at": NOW + timedelta(hours=1)},
        {"state": JobState.HELD},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_who_is_different_needs_a_plan(other: dict[str, object]) -> None:
    relay = followed(two_cpus(*(a_job(number) for number in range(1, 4))))
    assert not relay.let_join([a_job(4, **other)], SOON)  # type: ignore[arg-type]


def test_two_who_wait_and_differ_need_a_plan() -> None:
    relay = followed(two_cpus(*(a_job(number) for number in range(1, 5)), a_job(5, user="bob")))
    assert not relay.is_good(NOW)


def test_where_there_are_quotas_a_plan_is_needed() -> None:
    accounts = Accounts(user_quotas={"bob": Quota(running_gpus=1)})
    jobs = [a_job(number) for number in range(1, 5)]
    assert not followed(a_board((a_node(cpus=2),), jobs, accounts=accounts)).is_good(NOW)


def test_nobody_follows_on_a_node_that_is_drained() -> None:
    running = [a_job(number, state=JobState.RUNNING, started_at=NOW, node="a", attempt=1) for number in (1, 2)]
    nodes = (a_node(cpus=2, state=NodeState.DRAINED), a_node("b", cpus=1))
    board = a_board(nodes, [*running, *(a_job(number) for number in range(3, 6))])
    relay = followed(board)
    assert relay.starts_after([running[0]]) is None
    assert relay.starts_after([board.jobs[3]]) is not None


def test_a_line_is_followed_for_a_moment_only() -> None:
    relay = followed(two_cpus(*(a_job(number, SMALL) for number in range(1, 4))))
    assert relay.is_good(SOON)
    assert not relay.is_good(NOW + timedelta(seconds=GOOD_SECONDS))
    assert not relay.is_good(NOW - timedelta(seconds=1))  # the clock was set back


def test_who_joins_a_long_line_does_not_pass_those_who_are_not_kept() -> None:
    line = [a_job(number) for number in range(3, 2000)]
    relay = Relay(NOW, line, {"a"})
    assert relay.let_join([a_job(2000)], SOON)
    numbers = []
    while (starts := relay.starts_after([a_job(1, node="a")])) is not None:
        numbers += [start.job.id for start in starts]
    assert numbers == list(range(3, 3 + len(numbers)))
