"""Start decision for a job whose parents have ended."""

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
def test_conditions_decide_whether_a_job_starts(condition: str | None, states: list[str], starts: bool) -> None:
    verdict = decided(condition, *(over(f"a{place}", state) for place, state in enumerate(states)))
    assert (verdict.outcome is None) == starts
    assert starts or (verdict.reason or "").startswith("skipped")


def test_a_failure_with_continue_on_failure_counts_as_success() -> None:
    forgiven = over("a", "failed", continue_on_failure=True)
    assert decided(None, forgiven).outcome is None
    assert decided("failure()", forgiven).outcome == "skipped"
    assert decided(None, over("a", "skipped", continue_on_failure=True)).outcome == "skipped"


def test_a_failure_of_an_indirect_parent_counts() -> None:
    between = over("b", "skipped", is_after_failure=True)
    assert decided("failure()", between).outcome is None
    assert decided("failure()", between).is_after_failure
    assert decided(None, over("a", "failed")).is_after_failure


def test_values_are_filled_in_unchanged() -> None:
    nasty = "$(rm -rf /); `id` '\" ${{ params.lr }}"
    verdict = decided(None, over("a", outputs={"x": nasty}), words=("run", "--x=${{ jobs.a.outputs.x }}"))
    assert verdict.filled_words == ("run", f"--x={nasty}")


def test_min_and_max_find_the_best_variant() -> None:
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
        ("${{ jobs.a.outputs.y }}", "job a has no output y"),
        ("${{ max(jobs.a.outputs.x) }}", "need outputs of a job with a matrix"),
        ("${{ jobs.b.outputs.y }}", "jobs.b.outputs.y does not exist here"),
    ],
)
def test_a_template_that_cannot_be_filled_in_is_refused_with_a_reason(word: str, why: str) -> None:
    verdict = decided(None, over("a", outputs={"x": "1"}), words=(word,))
    assert verdict.outcome == "refused"
    assert why in (verdict.reason or "")


def test_a_missing_output_is_null_in_a_condition() -> None:
    assert decided("jobs.a.outputs.y == null", over("a")).outcome is None
    assert decided("jobs.a.outputs.x > 3", over("a", outputs={"x": "5"})).outcome is None
    assert decided("jobs.a.outputs.x > 3", over("a", outputs={"x": "many"})).outcome == "refused"


def test_values_that_grow_too_large_are_refused() -> None:
    word = "${{ jobs.a.outputs.x }}" * 50
    assert decided(None, over("a", outputs={"x": "y" * 4096}), words=(word,)).outcome == "refused"
