from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.controller.start_retries import StartRetries
from heliostat.controller.transition_rules import attempt_state_after, end_transition, transitions_for_observation
from heliostat.models import (
    TERMINAL_STATES,
    AttemptEnded,
    AttemptStarted,
    EndCause,
    JobState,
    TaskPlacement,
    may_transition,
)
from unit.scheduling.builders import NOW, a_job

RUNNING = a_job(1, state=JobState.RUNNING, attempt=1, node="a", devices=("x",), time_limit_seconds=60)


def end(cause: EndCause, exit_code: int | None = None, detail: str | None = None) -> AttemptEnded:
    return AttemptEnded("1.1", NOW, cause, exit_code, detail)


@pytest.mark.parametrize(
    ("ended", "state", "reason"),
    [
        (end(EndCause.EXITED, 0), JobState.COMPLETED, None),
        (end(EndCause.EXITED, 3), JobState.FAILED, "exit code 3"),
        (end(EndCause.TIMED_OUT, 143), JobState.TIMED_OUT, "it reached its time limit of 60 s"),
        (
            end(EndCause.OUT_OF_MEMORY, 137, "it used more than its 64 MiB of memory"),
            JobState.FAILED,
            "out of memory: it used more than its 64 MiB of memory; request more with --memory",
        ),
        (
            end(EndCause.OUT_OF_MEMORY, 137),
            JobState.FAILED,
            "out of memory: it used more memory than it requested; request more with --memory",
        ),
        (end(EndCause.LOST, None, "the machine restarted"), JobState.LOST, "the machine restarted"),
        (end(EndCause.REFUSED, None, "no such user"), JobState.FAILED, "no such user"),
        (end(EndCause.STOPPED, 143), JobState.CANCELLED, None),
    ],
    ids=lambda value: str(getattr(value, "cause", "")),
)
def test_each_cause_has_its_end_and_its_words(ended: AttemptEnded, state: JobState, reason: str | None) -> None:
    move = end_transition(RUNNING, ended, may_retry=False)
    assert (move.to_state, move.values["reason"], move.values["exit_code"]) == (state, reason, ended.exit_code)
    assert move.attempt == 1


def test_who_was_cancelled_is_cancelled_however_it_ended() -> None:
    cancelled = replace(RUNNING, stop_requested="cancel", reason="cancelled by bob")
    killed = replace(cancelled, stop_requested="kill")
    for cause in EndCause:
        assert end_transition(killed, end(cause, 0), may_retry=True).to_state is JobState.CANCELLED
        move = end_transition(cancelled, end(cause, 0), may_retry=True)
        assert (move.to_state, move.values["reason"]) == (JobState.CANCELLED, "cancelled by bob")


def test_a_lost_attempt_is_tried_again_as_often_as_was_asked_for() -> None:
    stubborn = replace(RUNNING, max_retries=2, retries=1)
    move = end_transition(stubborn, end(EndCause.LOST), may_retry=True)
    assert (move.to_state, move.values["retries"]) == (JobState.PENDING, 2)
    tired = replace(stubborn, retries=2)
    assert end_transition(tired, end(EndCause.LOST), may_retry=True).to_state is JobState.LOST


def test_a_job_whose_gpu_failed_waits_again_without_using_a_retry() -> None:
    hit = end(EndCause.DEVICE_FAILED, 134, "GPU 0 failed: it has fallen off the bus (XID 79)")
    move = end_transition(replace(RUNNING, max_retries=2), hit, may_retry=True)
    assert (move.to_state, move.event_kind, move.detail) == (JobState.PENDING, "device_failed", hit.detail)
    assert "retries" not in move.values
    assert move.exit_code == 134
    assert attempt_state_after(move) is JobState.FAILED
    over = end_transition(RUNNING, hit, may_retry=False)
    assert (over.to_state, over.values["reason"]) == (JobState.FAILED, hit.detail)


def test_a_job_on_whose_gpus_fail_again_and_again_is_not_requeued_forever() -> None:
    """Its program may be what makes them fail: it must not take out all GPUs of the cluster."""
    retries = StartRetries(1.0)
    allowed = []
    for _ in range(4):
        allowed.append(retries.may_retry(1))
        retries.record_observations([end(EndCause.DEVICE_FAILED, 1), AttemptStarted("1.2", NOW)])
    assert allowed == [True, True, True, False]
    assert retries.may_retry(2)


def test_what_failed_by_itself_is_not_tried_again() -> None:
    stubborn = replace(RUNNING, max_retries=9)
    for cause in (EndCause.EXITED, EndCause.TIMED_OUT, EndCause.OUT_OF_MEMORY, EndCause.REFUSED):
        assert end_transition(stubborn, end(cause, 1), may_retry=True).to_state in TERMINAL_STATES


@pytest.mark.parametrize(
    "ended",
    [
        end(EndCause.STOPPED, 143),
        end(EndCause.EXITED, 0),
        end(EndCause.EXITED, 143),
        end(EndCause.LOST),
        end(EndCause.NOT_STARTED),
    ],
    ids=lambda ended: f"{ended.cause} {ended.exit_code}",
)
def test_who_was_preempted_waits_again_and_it_is_counted(ended: AttemptEnded) -> None:
    victim = replace(RUNNING, stop_requested="preempt", reason="job 9 needs its resources", preemptions=1)
    move = end_transition(victim, ended, may_retry=False)
    assert (move.to_state, move.event_kind, move.detail) == (
        JobState.PENDING,
        "preempted",
        "job 9 needs its resources",
    )
    assert (move.values["preemptions"], move.values["reason"]) == (2, "job 9 needs its resources")
    assert "checkpointed_at" not in move.values  # what was saved stays saved
    assert attempt_state_after(move) is JobState.PREEMPTED


def test_who_reaches_its_limit_while_being_preempted_has_timed_out() -> None:
    victim = replace(RUNNING, stop_requested="preempt")
    assert end_transition(victim, end(EndCause.TIMED_OUT, 143), may_retry=True).to_state is JobState.TIMED_OUT


def test_overtime_ends_as_timed_out_and_says_that_others_were_waiting() -> None:
    late = replace(RUNNING, stop_requested="overtime", overtime=True)
    for ended in (
        end(EndCause.STOPPED, 0),
        end(EndCause.STOPPED, 143),
        end(EndCause.EXITED, 143),
        end(EndCause.LOST),
    ):
        move = end_transition(late, ended, may_retry=True)
        assert move.to_state is JobState.TIMED_OUT
        assert "exceeded its time limit of 60 s" in str(move.detail)
        assert "another job needed its resources" in str(move.detail)


def test_who_completes_in_overtime_by_itself_has_completed() -> None:
    late = replace(RUNNING, stop_requested="overtime", overtime=True)
    assert end_transition(late, end(EndCause.EXITED, 0), may_retry=True).to_state is JobState.COMPLETED


def test_history_tells_why_an_attempt_went_back_to_the_queue() -> None:
    requeued = end_transition(replace(RUNNING, stop_requested="requeue"), end(EndCause.STOPPED), may_retry=True)
    not_started = end_transition(RUNNING, end(EndCause.NOT_STARTED), may_retry=True)
    failed = end_transition(RUNNING, end(EndCause.EXITED, 1), may_retry=True)
    assert [attempt_state_after(move) for move in (requeued, not_started, failed)] == [
        JobState.CANCELLED,
        JobState.LOST,
        JobState.FAILED,
    ]


@given(
    st.sampled_from(EndCause),
    st.none() | st.integers(0, 255),
    st.sampled_from([None, "cancel", "requeue", "preempt", "overtime"]),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from([JobState.STARTING, JobState.RUNNING]),
)
def test_every_end_is_an_allowed_move_that_gives_back_what_was_held(
    cause: EndCause, exit_code: int | None, stop: str | None, retries: int, again: bool, state: JobState
) -> None:
    job = replace(RUNNING, state=state, stop_requested=stop, max_retries=2, retries=retries)
    move = end_transition(job, end(cause, exit_code), may_retry=again)
    assert may_transition(state, move.to_state)
    assert move.values["stop_requested"] is None
    if move.to_state is JobState.PENDING:
        assert (move.values["node"], move.values["devices"], move.values["exit_code"]) == (None, (), None)
        assert move.values["places"] == ()
    else:
        assert move.values["ended_at"] == NOW


HANDED = a_job(1, attempt=1, dispatched=True)


def test_who_starts_in_an_engines_queue_is_told_where_and_runs() -> None:
    places = (TaskPlacement("n1", ("n1:0",)), TaskPlacement("n2", ("n2:3",)))
    starting, running = transitions_for_observation(HANDED, AttemptStarted("1.1", NOW, places), may_retry=True)
    assert (starting.to_state, starting.event_kind, running.to_state) == (
        JobState.STARTING,
        "starting",
        JobState.RUNNING,
    )
    assert starting.values["node"] == "n1"
    assert starting.values["devices"] == ("n1:0", "n2:3")
    assert starting.values["places"] == places


@pytest.mark.parametrize(
    ("cause", "state"),
    [
        (EndCause.REFUSED, JobState.FAILED),
        (EndCause.NOT_STARTED, JobState.PENDING),
        (EndCause.STOPPED, JobState.CANCELLED),
    ],
)
def test_who_ends_in_an_engines_queue_goes_where_its_cause_says(cause: EndCause, state: JobState) -> None:
    given_back, move = transitions_for_observation(HANDED, end(cause, None, "why"), may_retry=True)
    assert (given_back.event_kind, given_back.values["node"], move.to_state) == ("given_back", None, state)
    assert may_transition(JobState.PENDING, given_back.to_state)
    assert may_transition(given_back.to_state, move.to_state)


def test_who_was_requeued_by_the_engine_waits_there_as_the_next_attempt() -> None:
    move = end_transition(RUNNING, end(EndCause.REQUEUED, detail="requeued"), may_retry=True)
    assert (move.to_state, move.event_kind, move.attempt) == (JobState.PENDING, "requeued", RUNNING.attempt)
    assert (move.values["attempt"], move.values["dispatched"]) == (RUNNING.attempt + 1, True)
    assert attempt_state_after(move) is JobState.CANCELLED


@pytest.mark.parametrize("asked", ["cancel", "kill"])
def test_who_was_cancelled_here_does_not_go_on_there(asked: str) -> None:
    move = end_transition(replace(RUNNING, stop_requested=asked), end(EndCause.REQUEUED), may_retry=True)
    assert move.to_state is JobState.CANCELLED
