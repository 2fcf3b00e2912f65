from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.controller.outcome import attempt_state_after, move_for_end, moves_for
from heliostat.models import TERMINAL, Cause, Ended, JobState, Place, Started, may_move
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
    killed = replace(cancelled, stop_requested="kill")
    for cause in Cause:
        assert move_for_end(killed, end(cause, 0), may_try_again=True).to is JobState.CANCELLED
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


@pytest.mark.parametrize(
    "ended",
    [
        end(Cause.STOPPED, 143),
        end(Cause.EXITED, 0),
        end(Cause.EXITED, 143),
        end(Cause.LOST),
        end(Cause.NOT_STARTED),
    ],
    ids=lambda ended: f"{ended.cause} {ended.exit_code}",
)
def test_who_was_preempted_waits_again_and_it_is_counted(ended: Ended) -> None:
    victim = replace(RUNNING, stop_requested="preempt", reason="made room for job 9", preemptions=1)
    move = move_for_end(victim, ended, may_try_again=False)
    assert (move.to, move.kind, move.detail) == (JobState.PENDING, "preempted", "made room for job 9")
    assert (move.values["preemptions"], move.values["reason"]) == (2, "made room for job 9")
    assert "checkpointed_at" not in move.values  # what was saved stays saved
    assert attempt_state_after(move) is JobState.PREEMPTED


def test_who_reaches_its_limit_while_being_preempted_has_timed_out() -> None:
    victim = replace(RUNNING, stop_requested="preempt")
    assert move_for_end(victim, end(Cause.TIMED_OUT, 143), may_try_again=True).to is JobState.TIMED_OUT


def test_overtime_ends_as_timed_out_and_says_that_others_were_waiting() -> None:
    late = replace(RUNNING, stop_requested="overtime", overtime=True)
    for ended in (end(Cause.STOPPED, 0), end(Cause.STOPPED, 143), end(Cause.EXITED, 143), end(Cause.LOST)):
        move = move_for_end(late, ended, may_try_again=True)
        assert move.to is JobState.TIMED_OUT
        assert "past its time limit of 60 s" in str(move.detail)
        assert "waiting" in str(move.detail)


def test_who_completes_in_overtime_by_itself_has_completed() -> None:
    late = replace(RUNNING, stop_requested="overtime", overtime=True)
    assert move_for_end(late, end(Cause.EXITED, 0), may_try_again=True).to is JobState.COMPLETED


def test_history_tells_why_an_attempt_went_back_to_the_queue() -> None:
    requeued = move_for_end(replace(RUNNING, stop_requested="requeue"), end(Cause.STOPPED), may_try_again=True)
    not_started = move_for_end(RUNNING, end(Cause.NOT_STARTED), may_try_again=True)
    failed = move_for_end(RUNNING, end(Cause.EXITED, 1), may_try_again=True)
    assert [attempt_state_after(move) for move in (requeued, not_started, failed)] == [
        JobState.CANCELLED,
        JobState.LOST,
        JobState.FAILED,
    ]


@given(
    st.sampled_from(Cause),
    st.none() | st.integers(0, 255),
    st.sampled_from([None, "cancel", "requeue", "preempt", "overtime"]),
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
        assert move.values["places"] == ()
    else:
        assert move.values["ended_at"] == NOW


HANDED = a_job(1, attempt=1, handed_over=True)


def test_who_starts_in_an_engines_queue_is_told_where_and_runs() -> None:
    places = (Place("n1", ("n1:0",)), Place("n2", ("n2:3",)))
    starting, running = moves_for(HANDED, Started("1.1", NOW, places), may_try_again=True)
    assert (starting.to, starting.kind, running.to) == (JobState.STARTING, "starting", JobState.RUNNING)
    assert starting.values["node"] == "n1"
    assert starting.values["devices"] == ("n1:0", "n2:3")
    assert starting.values["places"] == places


@pytest.mark.parametrize(
    ("cause", "state"),
    [
        (Cause.REFUSED, JobState.FAILED),
        (Cause.NOT_STARTED, JobState.PENDING),
        (Cause.STOPPED, JobState.CANCELLED),
    ],
)
def test_who_ends_in_an_engines_queue_goes_where_its_cause_says(cause: Cause, state: JobState) -> None:
    given_back, move = moves_for(HANDED, end(cause, None, "why"), may_try_again=True)
    assert (given_back.kind, given_back.values["node"], move.to) == ("given_back", None, state)
    assert may_move(JobState.PENDING, given_back.to)
    assert may_move(given_back.to, move.to)


def test_who_was_requeued_by_the_engine_waits_there_as_the_next_attempt() -> None:
    move = move_for_end(RUNNING, end(Cause.REQUEUED, detail="requeued"), may_try_again=True)
    assert (move.to, move.kind, move.attempt) == (JobState.PENDING, "requeued", RUNNING.attempt)
    assert (move.values["attempt"], move.values["handed_over"]) == (RUNNING.attempt + 1, True)
    assert attempt_state_after(move) is JobState.CANCELLED


@pytest.mark.parametrize("asked", ["cancel", "kill"])
def test_who_was_cancelled_here_does_not_go_on_there(asked: str) -> None:
    move = move_for_end(replace(RUNNING, stop_requested=asked), end(Cause.REQUEUED), may_try_again=True)
    assert move.to is JobState.CANCELLED
