"""Workflow files: expansion into jobs, and validation errors."""

import json
from typing import Any

import pytest

from heliostat.errors import HeliostatError, Invalid, TooLarge
from heliostat.workflows.expansion import ExpandedWorkflow, expand_workflow
from heliostat.workflows.start_decision import FinishedParent, StartCondition, decide_start
from heliostat.workflows.workflow_file import parse_workflow


def expanded(jobs: dict[str, Any], params: dict[str, Any] | None = None, **given: Any) -> ExpandedWorkflow:
    document = {"name": "train", "jobs": jobs, **({"params": params} if params else {})}
    return expand_workflow(parse_workflow(document), given)


def job(**fields: Any) -> dict[str, Any]:
    return {"command": ["true"], **fields}


def refusal(jobs: Any, params: Any = None, **given: Any) -> HeliostatError:
    with pytest.raises(HeliostatError) as caught:
        expanded(jobs, params, **given)
    assert caught.value.hint
    return caught.value


def test_a_matrix_fans_out_and_its_child_fans_in() -> None:
    made = expanded(
        {
            "prep": job(),
            "train": job(needs="prep", matrix={"lr": [0.1, 0.01], "seed": [1, 2]}),
            "join": job(needs=["train"]),
        }
    )
    assert [node.key for node in made.jobs] == ["prep", "train.1", "train.2", "train.3", "train.4", "join"]
    assert dict(made.jobs[3].values) == {"lr": 0.01, "seed": 1}
    assert made.jobs[3].needs == ("prep",)
    assert made.jobs[5].needs == ("train.1", "train.2", "train.3", "train.4")


def test_a_list_of_rows_gives_one_variant_per_row() -> None:
    made = expanded({"train": job(matrix=[{"lr": 0.1, "n": 1}, {"lr": 0.2, "n": 7}])})
    assert [dict(node.values) for node in made.jobs] == [{"lr": 0.1, "n": 1}, {"lr": 0.2, "n": 7}]


def test_variants_can_depend_on_those_with_the_same_values() -> None:
    made = expanded(
        {
            "train": job(matrix={"lr": [0.1, 0.01], "seed": [1, 2]}),
            "test": job(needs_each="train", matrix={"lr": [0.1, 0.01]}),
        }
    )
    assert [node.needs for node in made.jobs[4:]] == [("train.1", "train.2"), ("train.3", "train.4")]


def test_parameters_are_filled_in_and_become_environment_variables() -> None:
    made = expanded(
        {"train": job(command=["a", "--lr=${{ params.lr }}"], gpus="${{ params.gpus }}", env={"N": 3})},
        {"lr": 0.1, "gpus": {"type": "int", "default": 1}},
        lr="0.5",
    )
    body = made.jobs[0].job_fields
    assert (body["command"], body["gpus"]) == (["a", "--lr=0.5"], 1)
    assert body["env"] == {"HELIOSTAT_PARAM_LR": "0.5", "HELIOSTAT_PARAM_GPUS": "1", "N": "3"}
    assert not made.jobs[0].is_late


def test_outputs_of_other_jobs_are_filled_in_later() -> None:
    made = expanded({"a": job(), "b": job(needs="a", env={"X": "${{ jobs.a.outputs.x }}"})})
    assert made.jobs[1].is_late
    assert made.jobs[1].job_fields["env"] == {"X": "${{ jobs.a.outputs.x }}"}


@pytest.mark.parametrize(
    "value",
    [
        "${{ jobs.a.outputs.x }}",
        "${{",
        "$${{ nobody }}",
        "$" * 5 + "{{" * 3,
        "${{ '{{' }}",
        "${{ " * 500,
        "$${{ '{{' }}",
    ],
)
def test_values_are_never_expanded_even_in_jobs_that_are_filled_in_later(value: str) -> None:
    """The value of a parameter must not be evaluated as an expression."""
    late = {"command": ["run", "${{ params.p }}", "<${{ matrix.m }}>", "${{ jobs.a.outputs.x }}"]}
    variables = {"P": "-${{ params.p }}"}
    made = expanded(
        {"a": job(), "b": job(needs="a", **late, env=variables, comment="${{ params.p }}", matrix={"m": [value]})},
        {"p": "none"},
        p=value,
    )
    node = made.jobs[1]
    assert node.job_fields["comment"] == value
    env = node.job_fields["env"]
    assert isinstance(env, dict)
    words = [*node.job_fields["command"], *env.values()]  # type: ignore[misc]
    gate = StartCondition(node.key, None, made.params, node.values, words)
    verdict = decide_start(gate, [FinishedParent("a", "a", "completed", {"x": value})])
    filled = dict(zip(env, verdict.filled_words[4:], strict=True))
    assert verdict.filled_words[:4] == ("run", value, f"<{value}>", value)
    assert filled == {"HELIOSTAT_PARAM_P": value, "HELIOSTAT_PARAM_M": value, "P": f"-{value}"}


@pytest.mark.parametrize("matrix", [{"x": [1], "X": [2]}, [{"x": 1, "X": 2}]])
def test_two_matrix_names_must_not_give_the_same_environment_variable(matrix: Any) -> None:
    assert (
        refusal({"a": job(matrix=matrix)}).message == "jobs.a.matrix.X: gives the same environment variable as x."
    )


@pytest.mark.parametrize("given", [2**53 + 1, str(2**53 + 1), 2**70 + 1, f" -{10**30 + 1} "])
def test_whole_numbers_keep_all_their_digits(given: object) -> None:
    jobs = {"a": job(command=["${{ params.n }}", "${{ params.n == params.m }}"])}
    made = expanded(jobs, {"n": {"type": "int"}, "m": {"type": "int"}}, n=given, m=int(str(given)) - 1)
    assert made.jobs[0].job_fields["command"] == [str(given).strip(), "false"]


@pytest.mark.parametrize("given", ["9007199254740993.0", 1e17, "1e300"])
def test_a_float_that_may_be_inexact_is_not_an_int(given: object) -> None:
    error = refusal({"a": job()}, {"n": 1}, n=given)
    assert "not of type int" in error.message
    assert error.hint == "Write a whole number with all its digits."


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ({}, "jobs: must be a mapping of names to jobs"),
        ([job()], "jobs: must be a mapping of names to jobs"),
        ({"1": job()}, "begins with a letter"),
        ({"a b": job()}, "a name consists of letters"),
        ({"a": "true"}, "must be a mapping of fields"),
        (
            {"a": job(needs="prp"), "prep": job()},
            r"job 'prp' does not exist in this workflow \(did you mean prep\?\)",
        ),
        ({"a": job(needs=["b", "b"]), "b": job()}, "contains 'b' twice"),
        ({"a": job(needs="b"), "b": job(needs="c"), "c": job(needs="a")}, "a → b → c → a"),
        ({"a": job(needs="a")}, "a → a"),
        ({"a": job(after=12)}, "is not allowed in a workflow"),
        ({"a": job(array="0-9")}, "is not allowed in a workflow"),
        ({"a": job(**{"if": "sucess()"})}, r"unknown function sucess\(\)"),
        ({"a": job(**{"if": "1 <"})}, "expression is incomplete"),
        ({"a": job(**{"if": 7})}, "must be an expression"),
        ({"a": job(**{"if": "params.lr < 1"})}, "params.lr does not exist"),
        ({"a": job(), "b": job(**{"if": "jobs.a.outputs.x == 1"})}, "a is not in needs of b"),
        ({"a": job(), "b": job(needs="a", **{"if": "jobs.a.output.x == 1"})}, "jobs.a.output.x does not exist"),
        ({"a": {"command": "echo ${{ params.x }}"}}, "that a shell reads"),
        ({"a": {"script": "#!/bin/sh\necho ${{ params.x }}"}}, "that a shell reads"),
        (
            {"a": job(), "b": job(needs="a", gpus="${{ jobs.a.outputs.n }}")},
            "cannot refer to outputs of other jobs",
        ),
        ({"a": job(command=["${{ success() }}"])}, "unknown function success"),
        ({"a": job(command=["${{ 1"])}, "is not closed"),
        ({"a": job(matrix={"x": []})}, "must be a list of values"),
        ({"a": job(matrix={"x": [[1]]})}, "must be finite numbers, true, false, or text of"),
        ({"a": job(matrix={"x": [float("nan")]})}, "must be finite numbers"),
        ({"a": job(matrix=[{"x": 1}, {"y": 1}])}, "the same names as the first row"),
        ({"a": job(matrix={"x y": [1]})}, "is not a name"),
        ({"a": job(retries=-1)}, "a whole number from 0 to 100"),
        ({"a": job(retries=True)}, "a whole number from 0 to 100"),
        ({"a": job(retry_wait="soon")}, "retry_wait"),
        ({"a": job(continue_on_failure="yes")}, "must be true or false"),
        ({"a": job(), "b": job(needs_each="a", matrix={"x": [1]})}, "both b and a need a matrix"),
        ({"a": job(matrix={"x": [1]}), "b": job(needs_each="a", matrix={"x": [2]})}, "no variant with x=2"),
        (
            {"a": job(matrix={"x": [1]}), "b": job(needs_each="a", matrix={"y": [2]})},
            "have no matrix values in common",
        ),
    ],
)
def test_errors_name_the_place(jobs: Any, words: str) -> None:
    error = refusal(jobs)
    assert isinstance(error, Invalid)
    assert error.fields
    with pytest.raises(Invalid, match=words):
        expanded(jobs)


@pytest.mark.parametrize(
    ("params", "given", "words"),
    [
        ({"lr": {"type": "float"}}, {}, "params.lr: is required"),
        ({"lr": 0.1}, {"lr": "x"}, "'x' is not of type float"),
        ({"n": 1}, {"n": "1.5"}, "not of type int"),
        ({"n": 1}, {"m": "1"}, "unknown parameter; known parameters: n"),
        ({"on": True}, {"on": "maybe"}, "not of type bool"),
        ({"m": {"choices": ["a", "b"], "default": "a"}}, {"m": "c"}, "must be one of a, b"),
        ({"m": {"kind": "a"}}, {}, "unknown field"),
        ({"m": {"type": "list"}}, {}, "must be one of text, int, float, bool"),
        ({"1a": 1}, {}, "does not begin with a digit"),
        ({"n": 1}, {"n": float("inf")}, "finite"),
        ({"n": "x"}, {"n": "a\0b"}, "NUL"),
        ({"lr": 1, "LR": 2}, {}, "params.LR: gives the same environment variable as lr"),
    ],
)
def test_parameters_are_checked(params: Any, given: Any, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        expanded({"a": job()}, params, **given)


def test_unknown_fields_are_refused_with_a_suggestion() -> None:
    with pytest.raises(Invalid, match=r"unknown field \(did you mean params\?\)"):
        parse_workflow({"name": "x", "jobs": {"a": job()}, "parms": {}})
    with pytest.raises(Invalid, match="name: must be"):
        parse_workflow({"jobs": {"a": job()}})
    with pytest.raises(Invalid, match="must be a mapping with the fields"):
        parse_workflow([])


def test_huge_matrices_are_refused_before_expansion() -> None:
    hundred = list(range(100))
    error = refusal({"a": job(matrix=dict.fromkeys("abcdefgh", hundred))})
    assert "gives 10,000,000,000,000,000 jobs" in error.message
    half = {"x": hundred, "y": list(range(60))}
    assert "gives more than 10,000 jobs" in refusal({"a": job(matrix=half), "b": job(matrix=half)}).message
    pairs = {"a": job(matrix={"x": list(range(400))}), "b": job(needs="a", matrix={"x": list(range(400))})}
    assert "dependencies between jobs" in refusal(pairs).message
    large = {"a": {"script": "#" * 500_000, "matrix": {"x": list(range(1000))}}}
    assert isinstance(refusal(large), TooLarge)


def test_endlessly_nested_jobs_are_refused() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    assert "nested too deeply" in refusal({"a": job(env=deep)}).message


def test_five_thousand_jobs_are_expanded() -> None:
    jobs = {"prep": job(), **{f"n{i}": job(needs=f"n{i - 1}" if i else "prep") for i in range(4999)}}
    made = expanded(json.loads(json.dumps(jobs)))
    assert len(made.jobs) == 5000
