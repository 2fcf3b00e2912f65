from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.models import TERMINAL, Cause, Ended, JobState, may_move
from heliostat.workers.outcome import move_for_end
from unit.scheduling.made_up import NOW, a_job

RUNNING = a_job(1, state=JobState.RUNNING, attempt=1, node="a", devices=("x",), time_limit_seconds=60)


def end(cause: Cause, exit_code: int | None = None, detail: str | None = None) -> Ended:
    return Ended("1.1", NOW, cause, exit_code, detail)


@pytest.mark.parametrize(
    ("ended", "state", "reason"),
    [
        (end(Cause.EXITED, 0), JobState.COMPLETED, None),
        (end(Cause.EXITED, 3), JobState.FAILED, "exit code 3"),
        (end(Cause.TIMED_OUT, 143), JobState.TIMED_OUT, "its time limit of 60 s was over"),
        (
            end(Cause.OUT_OF_MEMORY, 137, "it used more than its 64 MiB of memory"),
            JobState.FAILED,
            "out of memory: it used more than its 64 MiB of memory; ask for more with --memory",
        ),
        (end(Cause.LOST, None, "the machine restarted"), JobState.LOST, "the machine restarted"),
        (end(Cause.REFUSED, None, "no such user"), JobState.FAILED, "no such user"),
        (end(Cause.STOPPED, 143), JobState.CANCELLED, None),
    ],
    ids=lambda value: str(getattr(value, "cause", "")),
)
def test_each_cause_has_its_end_and_its_words(ended: Ended, state: JobState, reason: str | None) -> None:
    move = move_for_end(RUNNING, ended, may_try_again=False)
    assert (move.to, move.values["reason"], move.values["exit_code"]) == (state, reason, ended.exit_code)
    assert move.attempt == 1


def test_who_was_cancelled_is_cancelled_however_it_ended() -> None:
    cancelled = replace(RUNNING, stop_requested="cancel", reason="cancelled by bob")
    for cause in Cause:
        move = move_for_end(cancelled, end(cause, 0), may_try_again=True)
        assert (move.to, move.values["reason"]) == (JobState.CANCELLED, "cancelled by bob")


def test_a_lost_attempt_is_tried_again_as_often_as_was_asked_for() -> None:
    stubborn = replace(RUNNING, max_retries=2, retries=1)
    move = move_for_end(stubborn, end(Cause.LOST), may_try_again=True)
    assert (move.to, move.values["retries"]) == (JobState.PENDING, 2)
    tired = replace(stubborn, retries=2)
    assert move_for_end(tired, end(Cause.LOST), may_try_again=True).to is JobState.LOST


def test_what_failed_by_itself_is_not_tried_again() -> None:
    stubborn = replace(RUNNING, max_retries=9)
    for cause in (Cause.EXITED, Cause.TIMED_OUT, Cause.OUT_OF_MEMORY, Cause.REFUSED):
        assert move_for_end(stubborn, end(cause, 1), may_try_again=True).to in TERMINAL


@given(
    st.sampled_from(Cause),
    st.none() | st.integers(0, 255),
    st.sampled_from([None, "cancel", "requeue"]),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from([JobState.STARTING, JobState.RUNNING]),
)
def test_every_end_is_an_allowed_move_that_gives_back_what_was_held(
    cause: Cause, exit_code: int | None, stop: str | None, retries: int, again: bool, state: JobState
) -> None:
    job = replace(RUNNING, state=state, stop_requested=stop, max_retries=2, retries=retries)
    move = move_for_end(job, end(cause, exit_code), may_try_again=again)
    assert may_move(state, move.to)
    assert move.values["stop_requested"] is None
    if move.to is JobState.PENDING:
        assert (move.values["node"], move.values["devices"], move.values["exit_code"]) == (None, (), None)
    else:
        assert move.values["ended_at"] == NOW
