"""What becomes of a job when those it needs are over."""

from typing import Any

import pytest

from heliostat.workflows.start_decision import FinishedParent, StartCondition, StartDecision, decide_start


def over(key: str, state: str = "completed", outputs: dict[str, str] | None = None, **more: Any) -> FinishedParent:
    return FinishedParent(key, key.partition(".")[0], state, outputs or {}, "." in key, **more)


def decided(
    condition: str | None, *those: FinishedParent, words: tuple[str, ...] = (), **matrix: Any
) -> StartDecision:
    return decide_start(StartCondition("me", condition, {"lr": 0.1}, matrix, words), those)


@pytest.mark.parametrize(
    ("condition", "states", "starts"),
    [
        (None, ["completed", "completed"], True),
        (None, ["completed", "failed"], False),
        (None, ["skipped"], False),
        (None, [], True),
        ("success()", ["completed"], True),
        ("failure()", ["completed"], False),
        ("failure()", ["completed", "timed_out"], True),
        ("failure()", ["skipped"], False),
        ("failure()", ["cancelled"], True),
        ("always()", ["lost", "skipped"], True),
        ("params.lr < 1", ["completed"], True),
        ("params.lr < 1", ["failed"], False),
        ("always() and params.lr > 1", ["completed"], False),
        ("not failure()", ["skipped"], True),
        ("jobs.a0.state == 'failed' and always()", ["failed"], True),
    ],
)
def test_conditions_decide_who_starts(condition: str | None, states: list[str], starts: bool) -> None:
    verdict = decided(condition, *(over(f"a{place}", state) for place, state in enumerate(states)))
    assert (verdict.outcome is None) == starts
    assert starts or (verdict.reason or "").startswith("skipped")


def test_a_failure_that_is_forgiven_is_no_failure() -> None:
    forgiven = over("a", "failed", continue_on_failure=True)
    assert decided(None, forgiven).outcome is None
    assert decided("failure()", forgiven).outcome == "skipped"
    assert decided(None, over("a", "skipped", continue_on_failure=True)).outcome == "skipped"


def test_a_failure_further_back_counts_as_one() -> None:
    between = over("b", "skipped", is_after_failure=True)
    assert decided("failure()", between).outcome is None
    assert decided("failure()", between).is_after_failure
    assert decided(None, over("a", "failed")).is_after_failure


def test_values_are_filled_into_words_as_they_are() -> None:
    nasty = "$(rm -rf /); `id` '\" ${{ params.lr }}"
    verdict = decided(None, over("a", outputs={"x": nasty}), words=("run", "--x=${{ jobs.a.outputs.x }}"))
    assert verdict.filled_words == ("run", f"--x={nasty}")


def test_the_best_of_many_is_found() -> None:
    those = [over("t.1", outputs={"acc": "0.5"}), over("t.2", outputs={"acc": "0.9"}), over("t.3")]
    words = (
        "${{ argmax(jobs.t.outputs.acc) }}",
        "${{ max(jobs.t.outputs.acc) }}",
        "${{ argmin(jobs.t.outputs.acc) }}",
        "${{ join(jobs.t.outputs.acc) }}",
        "${{ count(jobs.t.outputs.acc) }}",
    )
    assert decided(None, *those, words=words).filled_words == ("t.2", "0.9", "t.1", "0.5,0.9", "2")


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("${{ jobs.a.outputs.y }}", "a has handed on no value y"),
        ("${{ max(jobs.a.outputs.x) }}", "values of a job with a matrix"),
        ("${{ jobs.b.outputs.y }}", "there is no jobs.b.outputs.y here"),
    ],
)
def test_what_cannot_be_filled_in_is_refused_with_the_reason(word: str, why: str) -> None:
    verdict = decided(None, over("a", outputs={"x": "1"}), words=(word,))
    assert verdict.outcome == "refused"
    assert why in (verdict.reason or "")


def test_a_value_that_was_not_handed_on_is_null_in_a_condition() -> None:
    assert decided("jobs.a.outputs.y == null", over("a")).outcome is None
    assert decided("jobs.a.outputs.x > 3", over("a", outputs={"x": "5"})).outcome is None
    assert decided("jobs.a.outputs.x > 3", over("a", outputs={"x": "many"})).outcome == "refused"


def test_values_that_grow_too_large_are_refused() -> None:
    word = "${{ jobs.a.outputs.x }}" * 50
    assert decided(None, over("a", outputs={"x": "y" * 4096}), words=(word,)).outcome == "refused"
