import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.models import ACTIVE_STATES, TERMINAL_STATES, WAITING_STATES, JobState, may_transition


def test_every_state_says_where_it_may_go() -> None:
    for before in JobState:
        for after in JobState:
            assert may_transition(before, after) in (True, False)


def test_waiting_active_and_terminal_do_not_overlap() -> None:
    assert not WAITING_STATES & ACTIVE_STATES
    assert not (WAITING_STATES | ACTIVE_STATES) & TERMINAL_STATES
    assert set(JobState) - WAITING_STATES - ACTIVE_STATES - TERMINAL_STATES == {JobState.PREEMPTED}


@pytest.mark.parametrize("state", sorted(TERMINAL_STATES))
def test_what_is_over_never_changes(state: JobState) -> None:
    assert not any(may_transition(state, after) for after in JobState)


@pytest.mark.parametrize("state", JobState)
def test_no_state_moves_to_itself(state: JobState) -> None:
    assert not may_transition(state, state)


def test_only_a_pending_job_starts_and_only_a_starting_one_runs() -> None:
    assert {state for state in JobState if may_transition(state, JobState.STARTING)} == {JobState.PENDING}
    assert {state for state in JobState if may_transition(state, JobState.RUNNING)} == {JobState.STARTING}


def test_a_job_can_be_cancelled_as_long_as_it_is_not_over() -> None:
    assert {state for state in JobState if may_transition(state, JobState.CANCELLED)} == set(
        JobState
    ) - TERMINAL_STATES


def test_only_what_ran_can_succeed_or_run_out_of_time_and_what_waits_can_fail_too() -> None:
    for end in (JobState.COMPLETED, JobState.TIMED_OUT, JobState.LOST):
        assert {state for state in JobState if may_transition(state, end)} == ACTIVE_STATES
    assert {
        state for state in JobState if may_transition(state, JobState.FAILED)
    } == ACTIVE_STATES | WAITING_STATES


@given(st.lists(st.sampled_from(JobState), max_size=30))
def test_whatever_is_wished_the_first_end_is_the_last(wishes: list[JobState]) -> None:
    state, ends = JobState.PENDING, 0
    for wish in wishes:
        if may_transition(state, wish):
            state = wish
            ends += wish in TERMINAL_STATES
    assert ends <= 1
