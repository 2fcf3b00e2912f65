"""What is handed to an engine that queues by itself."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from heliostat.controller.outcome import moves_for
from heliostat.models import (
    ACTIVE,
    TERMINAL,
    Cause,
    Dependency,
    Ended,
    Job,
    JobSpec,
    JobState,
    Resources,
    Rule,
)
from heliostat.scheduling.handover import MOST_PARENTS, Takes, may_follow, to_hand_over

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def job(number: int, **fields: object) -> Job:
    made = Job(number, "batch", "x", JobState.PENDING, "ann", "ann", "p", Resources(), JobSpec(), NOW)
    return replace(made, **fields)  # type: ignore[arg-type]


def test_everything_that_waits_is_handed_over_in_order() -> None:
    jobs = [job(3), job(1), job(2, state=JobState.HELD), job(4, state=JobState.RUNNING), job(5, handed_over=True)]
    assert [one.id for one in to_hand_over(jobs)] == [1, 3]


def test_who_is_delayed_waits_a_little_longer() -> None:
    assert [one.id for one in to_hand_over([job(1), job(2)], delayed={1})] == [2]


def test_of_an_array_no_more_than_its_limit_is_in_hand() -> None:
    array = {"array_id": 7, "array_limit": 3}
    jobs = [job(1, state=JobState.RUNNING, **array), job(2, handed_over=True, **array)]
    jobs += [job(number, **array) for number in (3, 4, 5)]
    assert [one.id for one in to_hand_over([*jobs, job(6)])] == [3, 6]


def test_an_engine_that_limits_arrays_gets_all_of_one_it_has_nothing_of() -> None:
    whole = [job(number, array_id=7, array_limit=2) for number in range(1, 6)]
    assert [one.id for one in to_hand_over(whole, takes=Takes(whole_arrays=True))] == [1, 2, 3, 4, 5]
    rest = [replace(whole[0], handed_over=True), *whole[1:]]
    assert [one.id for one in to_hand_over(rest, takes=Takes(whole_arrays=True))] == [2]


def test_the_next_of_an_array_follows_in_the_round_in_which_one_ends() -> None:
    jobs = [
        job(1, array_id=7, array_limit=1, attempt=1, state=JobState.RUNNING),
        job(2, array_id=7, array_limit=1),
    ]
    assert to_hand_over(jobs) == []
    assert [one.id for one in to_hand_over(jobs, ended={"1.1"})] == [2]


CHILDREN = Takes(children=True)


def child(number: int, *parents: int, rule: Rule = Rule.OK, **fields: object) -> Job:
    after = tuple(Dependency(parent, rule) for parent in parents)
    return job(number, after=after, parents_left=len(parents), **fields)


def test_a_whole_chain_follows_its_first_in_whatever_order_it_was_numbered() -> None:
    chain = [child(1, 2), child(2, 3), child(3, 4), job(4), child(5, 1, 4)]
    assert to_hand_over(chain, now=NOW) == [chain[3]]
    assert [one.id for one in to_hand_over(chain, now=NOW, takes=CHILDREN)] == [4, 3, 2, 1, 5]


def test_a_long_chain_takes_no_time() -> None:
    chain = [child(number, number + 1) for number in range(1, 5000)] + [job(5000)]
    assert len(to_hand_over(chain, now=NOW, takes=CHILDREN)) == 5000


def test_a_parent_that_is_kept_back_keeps_its_children_back() -> None:
    jobs = [job(1, state=JobState.HELD), child(2, 1), child(3, 2), job(4), child(5, 4)]
    assert [one.id for one in to_hand_over(jobs, delayed={4}, takes=CHILDREN)] == []


def test_who_waits_for_a_build_is_kept_back_until_what_it_made_is_in_its_place() -> None:
    builds = [
        job(1, kind="build"),
        job(2, kind="build", state=JobState.RUNNING),
        job(3, kind="build", handed_over=True),
    ]
    children = [child(number + 10, number) for number in (1, 2, 3)]
    assert [one.id for one in to_hand_over([*builds, *children], takes=CHILDREN)] == [1]


def test_who_is_to_begin_later_is_handed_over_at_once() -> None:
    later = job(1, begin_at=NOW + timedelta(hours=1))
    assert to_hand_over([later], now=NOW) == []
    assert to_hand_over([later], now=NOW, takes=CHILDREN) == [later]


def test_who_waits_for_very_many_is_kept_back() -> None:
    parents = [job(number, handed_over=True) for number in range(1, MOST_PARENTS + 2)]
    some, many = child(900, *range(1, MOST_PARENTS + 1)), child(901, *range(1, MOST_PARENTS + 2))
    assert to_hand_over([*parents, some, many], takes=CHILDREN) == [some]


@given(
    state=st.sampled_from([state for state in JobState if state not in TERMINAL]),
    handed_over=st.booleans(),
    retries=st.integers(0, 2),
    stop=st.sampled_from([None, "cancel", "requeue", "kill"]),
    rule=st.sampled_from(Rule),
)
def test_an_engine_is_told_of_a_parent_only_if_it_cannot_misread_its_end(
    state: JobState, handed_over: bool, retries: int, stop: str | None, rule: Rule
) -> None:
    parent = job(1, state=state, handed_over=handed_over, stop_requested=stop, retries=retries, max_retries=1)
    if not may_follow(parent, rule):
        return
    assert stop is None
    assert parent.handed_over or parent.state in ACTIVE
    lost = Ended(parent.attempt_id, NOW, Cause.LOST)
    (*_, move) = moves_for(parent, lost, may_try_again=True)
    if rule is not Rule.OK:  # who waits for success does not start by the end of a lost one
        assert parent.state is JobState.RUNNING
        assert move.to is JobState.LOST
