"""Size limits of workflow expansion: small files must not expand to large ones."""

from typing import Any

import pytest

from heliostat.errors import Invalid, TooLarge
from heliostat.workflows import templates, workflow_file
from heliostat.workflows.expansion import ExpandedWorkflow, ExpansionBudget, expand_workflow
from heliostat.workflows.expressions import MAX_WORD_BYTES, ExpressionError, as_text
from heliostat.workflows.start_decision import (
    FinishedParent,
    StartCondition,
    StartDecision,
    decide_start,
    find_referenced_outputs,
)
from heliostat.workflows.sweep_file import parse_sweep
from heliostat.workflows.templates import parse_template
from heliostat.workflows.workflow_file import parse_workflow

HUGE = 10**400


def expanded(
    jobs: dict[str, Any], params: dict[str, Any] | None = None, budget: ExpansionBudget | None = None
) -> ExpandedWorkflow:
    return expand_workflow(parse_workflow({"name": "train", "jobs": jobs, "params": params or {}}), {}, budget)


def job(**fields: Any) -> dict[str, Any]:
    return {"command": ["true"], **fields}


def variants(count: int) -> dict[str, list[int]]:
    return {"x": list(range(count))}


def little_room() -> ExpansionBudget:
    return ExpansionBudget(most_bytes=50_000)


@pytest.mark.parametrize(
    "fields",
    [
        {"env": {"A": "<${{ params.p }}>" * 10}},  # grows by what is filled in
        {"command": ["run", *["${{ params.p }}"] * 10]},
        {},  # parameters are variables of each job
    ],
)
def test_jobs_that_exceed_the_budget_while_filled_in_are_too_large(fields: dict[str, Any]) -> None:
    params = {"p": "y" * 1000}
    with pytest.raises(TooLarge, match="The expanded jobs are larger than") as caught:
        expanded({"a": job(matrix=variants(60), **fields)}, params, little_room())
    assert caught.value.hint
    assert len(expanded({"a": job(matrix=variants(3), **fields)}, params, little_room()).jobs) == 3


def test_expansion_of_one_large_job_stops_early(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    plain = ExpansionBudget.take_bytes

    def noted(room: ExpansionBudget, count: int) -> None:
        taken.append(count)
        plain(room, count)

    monkeypatch.setattr(ExpansionBudget, "take_bytes", noted)
    with pytest.raises(TooLarge):
        expanded({"a": job(command=["<${{ params.p }}>"] * 1000)}, {"p": "y" * 5000}, little_room())
    assert 1 < len(taken) < 20


def test_an_argument_is_not_longer_than_the_limit() -> None:
    with pytest.raises(Invalid, match="the limit of one argument"):
        expanded({"a": job(command=["${{ params.p }}" * 14])}, {"p": "y" * 10_000})
    assert as_text(["y" * 1000] * 100).count("y") == 100_000
    with pytest.raises(ExpressionError, match="the limit of one argument"):
        as_text(["y" * 1000] * 132)


def test_matrices_are_counted_during_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    plain = workflow_file.parse_matrix

    def counted(field: str, given: object) -> Any:
        read.append(given)
        return plain(field, given)

    monkeypatch.setattr(workflow_file, "parse_matrix", counted)
    with pytest.raises(Invalid, match="gives more than 10,000 jobs"):
        expanded({f"a{number}": job(matrix=variants(5000)) for number in range(6)})
    assert len(read) == 3


def test_dependencies_of_needs_each_are_counted_too() -> None:
    first = {"same": [1], "x": list(range(400))}
    second = {"same": [1], "y": list(range(400))}
    with pytest.raises(Invalid, match="dependencies between jobs") as caught:
        expanded({"a": job(matrix=first), "b": job(needs_each="a", matrix=second)})
    assert caught.value.fields


def test_many_expressions_over_many_jobs_are_refused() -> None:
    parents = job(matrix=variants(20))
    few = job(needs="a", command=["run", *["${{ count(jobs.a.outputs.n) }}"] * 5])
    many = job(needs="a", command=["run", *["${{ count(jobs.a.outputs.n) }}"] * 6])
    assert len(expanded({"a": parents, "b": few}, budget=ExpansionBudget(most_lookups=100)).jobs) == 21
    with pytest.raises(Invalid, match="refers to outputs of other jobs more than 100 times") as caught:
        expanded({"a": parents, "b": many}, budget=ExpansionBudget(most_lookups=100))
    assert caught.value.fields


def test_jobs_nested_deeper_than_can_be_filled_in_are_refused() -> None:
    deep: Any = "x"
    for _ in range(700):
        deep = [deep]
    with pytest.raises(Invalid, match="nested too deeply"):
        expanded({"a": job(env=deep)})


def decided(those: list[FinishedParent], *words: str) -> StartDecision:
    return decide_start(StartCondition("me", None, {}, {}, words), those)


def test_joined_outputs_are_not_longer_than_one_argument() -> None:
    those = [FinishedParent(f"a.{number}", "a", "completed", {"x": "y" * 4096}, True) for number in range(40)]
    verdict = decided(those, "${{ join(jobs.a.outputs.x) }}" * 100)
    assert verdict.outcome == "refused"
    assert "the limit of one argument" in (verdict.reason or "")


def test_the_total_growth_of_all_arguments_is_limited() -> None:
    those = [FinishedParent(f"a.{number}", "a", "completed", {"x": "y" * 4096}, True) for number in range(20)]
    word = "${{ join(jobs.a.outputs.x) }}"
    assert decided(those, "run", word).outcome is None
    verdict = decided(those, "run", word, word)
    assert verdict.outcome == "refused"
    assert "128 KiB" in (verdict.reason or "")


def test_a_long_argument_that_hardly_grows_is_allowed() -> None:
    long = f"{'z' * (MAX_WORD_BYTES - 100)}${{{{ jobs.a.outputs.x }}}}"
    assert decided([FinishedParent("a", "a", "completed", {"x": "1"})], long, long).outcome is None


def test_referenced_outputs_of_a_condition_are_found() -> None:
    words = ("run", "${{ max(jobs.a.outputs.acc) }}", "${{ params.lr }}")
    assert find_referenced_outputs(StartCondition("me", "jobs.b.outputs.n > 1", {}, {}, words)) == {"acc", "n"}
    assert find_referenced_outputs(StartCondition("me", None, {}, {})) == frozenset()
    assert find_referenced_outputs(StartCondition("me", "1 <", {}, {})) == frozenset()


def test_long_templates_are_not_cached() -> None:
    before = templates.parse_cached.cache_info().currsize
    for number in range(5):
        parse_template(f"{number}{'z' * 5000} ${{{{ 1 }}}}")
    assert templates.parse_cached.cache_info().currsize == before


def test_infinite_numbers_are_refused_with_their_place() -> None:
    for wrong in (
        {"jobs": {"a": job(matrix={"x": [HUGE]})}},
        {"jobs": {"a": job(matrix=[{"x": -HUGE}])}},
        {"jobs": {"a": job()}, "params": {"x": HUGE}},
        {"jobs": {"a": job()}, "params": {"x": {"type": "int", "default": HUGE}}},
        {"jobs": {"a": job()}, "params": {"x": {"type": "text", "choices": [HUGE]}}},
    ):
        with pytest.raises(Invalid, match="finite") as caught:
            parse_workflow({"name": "a", **wrong})
        assert caught.value.fields


@pytest.mark.parametrize(
    "swept",
    [
        {"grid": {"lr": [HUGE]}},
        {"random": {"count": 2, "values": {"lr": {"from": 1, "to": HUGE}}}},
        {"random": {"count": 2, "values": {"lr": {"from": -1.7e308, "to": 1.7e308}}}},
    ],
)
def test_sweeps_over_infinite_numbers_are_refused(swept: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as caught:
        parse_sweep({"name": "lr", "job": {"command": ["run", "{lr}"]}, **swept})
    assert caught.value.fields


def test_a_sweep_up_to_the_largest_float_is_sampled() -> None:
    values = {"lr": {"from": 1.7976931348623157e308, "to": 1.7976931348623157e308, "log": True}}
    made = parse_sweep({"name": "lr", "job": {"command": ["run"]}, "random": {"count": 1, "values": values}})
    assert len(made.variants) == 1


def test_duplicate_needs_among_thousands_are_refused() -> None:
    names = [f"j{number}" for number in range(1500)]
    jobs = {name: job() for name in names}
    with pytest.raises(Invalid, match="contains 'j7' twice"):
        parse_workflow({"name": "a", "jobs": {**jobs, "last": job(needs=[*names, "j7"])}})
