from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.controller.transition_rules import attempt_state_after, end_transition
from heliostat.models import TERMINAL_STATES, AttemptEnded, EndCause, JobState
from heliostat.models.retries import MAX_RETRY_DELAY_SECONDS, RetryPolicy, parse_retry_on
from heliostat.scheduling.dependencies import explain_ineligible
from unit.scheduling.builders import NOW, a_job

RUNNING = a_job(1, state=JobState.RUNNING, attempt=1, node="a", time_limit_seconds=60, max_retries=3)
NAMED = {
    EndCause.LOST: "lost",
    EndCause.PREEMPTED: "preempted",
    EndCause.TIMED_OUT: "timed_out",
    EndCause.OUT_OF_MEMORY: "out_of_memory",
}
causes = st.lists(
    st.sampled_from(["lost", "preempted", "timed_out", "out_of_memory", "exit"])
    | st.integers(1, 255).map(lambda code: f"exit:{code}"),
    min_size=1,
    max_size=6,
)


def end(cause: EndCause, exit_code: int | None = None) -> AttemptEnded:
    return AttemptEnded("1.1", NOW, cause, exit_code, "detail")


@pytest.mark.parametrize(
    ("ended", "state"),
    [
        (end(EndCause.LOST), JobState.PENDING),
        (end(EndCause.PREEMPTED), JobState.PENDING),
        (end(EndCause.OUT_OF_MEMORY, 137), JobState.FAILED),
        (end(EndCause.TIMED_OUT, 143), JobState.TIMED_OUT),
        (end(EndCause.EXITED, 75), JobState.FAILED),
    ],
    ids=str,
)
def test_unless_more_is_named_only_what_the_cluster_did_is_tried_again(
    ended: AttemptEnded, state: JobState
) -> None:
    assert end_transition(RUNNING, ended, may_retry=True).to_state is state


@given(causes, st.sampled_from(EndCause), st.none() | st.integers(0, 255), st.integers(0, 4))
def test_what_is_named_is_tried_again_and_nothing_else(
    on: list[str], cause: EndCause, exit_code: int | None, retries: int
) -> None:
    job = replace(RUNNING, retries=retries, retry=RetryPolicy(parse_retry_on(on)))
    move = end_transition(job, end(cause, exit_code), may_retry=False)
    wanted = cause is EndCause.EXITED and bool(exit_code) and ("exit" in on or f"exit:{exit_code}" in on)
    wanted = wanted or NAMED.get(cause) in on
    if cause is EndCause.REQUEUED:
        return  # that is another's decision, and costs no retry
    assert (move.to_state is JobState.PENDING) == (wanted and retries < 3)
    if move.to_state is JobState.PENDING:
        assert move.values["retries"] == retries + 1
        assert f"retry {retries + 1} of 3" in str(move.detail)
        assert move.exit_code == exit_code
        assert attempt_state_after(move) in TERMINAL_STATES


@given(st.sampled_from(["cancel", "kill"]), st.sampled_from(EndCause), st.integers(0, 255))
def test_who_is_cancelled_is_not_tried_again_whatever_is_named(stop: str, cause: EndCause, exit_code: int) -> None:
    job = replace(RUNNING, stop_requested=stop, retry=RetryPolicy(("lost", "exit", "timed_out", "out_of_memory")))
    assert end_transition(job, end(cause, exit_code), may_retry=True).to_state is JobState.CANCELLED


@given(st.integers(0, 7 * 86400), st.integers(0, 100))
def test_the_delay_doubles_never_shrinks_and_has_an_end(delay: int, used: int) -> None:
    retry = RetryPolicy(("exit",), delay)
    now, then = retry.next_delay_seconds(used), retry.next_delay_seconds(used + 1)
    assert delay <= now <= then <= max(delay, MAX_RETRY_DELAY_SECONDS)
    assert then in (2 * now, max(delay, MAX_RETRY_DELAY_SECONDS)) or delay == 0


def test_who_waits_for_its_next_try_says_when_and_after_what() -> None:
    job = replace(RUNNING, retries=1, retry=RetryPolicy(("exit:75",), 30))
    move = end_transition(job, replace(end(EndCause.EXITED, 75), detail=None), may_retry=True)
    assert move.values["begin_at"] == NOW + timedelta(seconds=60)
    waiting = replace(job, state=JobState.PENDING, **move.values)
    words = explain_ineligible(waiting, {}, NOW)
    assert words is not None
    assert words.startswith("is retried at ")
    assert words.endswith("after exit code 75 (retry 2 of 3)")
    assert not waiting.is_eligible(NOW)
    assert waiting.is_eligible(NOW + timedelta(seconds=60))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("lost,exit:75", ("lost", "exit:75")),
        (" exit:075 , exit:75", ("exit:75",)),
        (["timed_out", "out_of_memory"], ("timed_out", "out_of_memory")),
    ],
)
def test_causes_are_read_as_people_write_them(written: object, read: tuple[str, ...]) -> None:
    assert parse_retry_on(written) == read


@pytest.mark.parametrize("written", ["", "exit:0", "exit:256", "oom", "exit:-1", [1], 5, ["lost"] * 21, "exit:²"])
def test_what_is_no_cause_is_refused_in_a_sentence(written: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_retry_on(written)
