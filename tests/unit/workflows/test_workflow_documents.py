"""Workflow files, read strictly: what they become, and what is wrong with them in words."""

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


def test_a_matrix_fans_out_and_who_comes_after_it_fans_in() -> None:
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


def test_a_list_of_rows_makes_one_variant_of_each() -> None:
    made = expanded({"train": job(matrix=[{"lr": 0.1, "n": 1}, {"lr": 0.2, "n": 7}])})
    assert [dict(node.values) for node in made.jobs] == [{"lr": 0.1, "n": 1}, {"lr": 0.2, "n": 7}]


def test_variants_can_follow_those_with_the_same_values() -> None:
    made = expanded(
        {
            "train": job(matrix={"lr": [0.1, 0.01], "seed": [1, 2]}),
            "test": job(needs_each="train", matrix={"lr": [0.1, 0.01]}),
        }
    )
    assert [node.needs for node in made.jobs[4:]] == [("train.1", "train.2"), ("train.3", "train.4")]


def test_parameters_are_filled_in_and_are_variables_too() -> None:
    made = expanded(
        {"train": job(command=["a", "--lr=${{ params.lr }}"], gpus="${{ params.gpus }}", env={"N": 3})},
        {"lr": 0.1, "gpus": {"type": "int", "default": 1}},
        lr="0.5",
    )
    body = made.jobs[0].job_fields
    assert (body["command"], body["gpus"]) == (["a", "--lr=0.5"], 1)
    assert body["env"] == {"HELIOSTAT_PARAM_LR": "0.5", "HELIOSTAT_PARAM_GPUS": "1", "N": "3"}
    assert not made.jobs[0].is_late


def test_what_others_hand_on_stays_to_be_filled_in_later() -> None:
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
def test_a_value_stays_a_value_whatever_is_in_it_also_in_jobs_that_are_filled_in_later(value: str) -> None:
    """Somebody's parameter must not become an expression of the workflow it is given to."""
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
def test_two_values_of_a_matrix_are_not_the_same_variable(matrix: Any) -> None:
    assert refusal({"a": job(matrix=matrix)}).message == "jobs.a.matrix.X: is the same variable as x."


@pytest.mark.parametrize("given", [2**53 + 1, str(2**53 + 1), 2**70 + 1, f" -{10**30 + 1} "])
def test_whole_numbers_keep_all_their_digits(given: object) -> None:
    jobs = {"a": job(command=["${{ params.n }}", "${{ params.n == params.m }}"])}
    made = expanded(jobs, {"n": {"type": "int"}, "m": {"type": "int"}}, n=given, m=int(str(given)) - 1)
    assert made.jobs[0].job_fields["command"] == [str(given).strip(), "false"]


@pytest.mark.parametrize("given", ["9007199254740993.0", 1e17, "1e300"])
def test_a_number_that_may_be_another_than_was_written_is_no_whole_number(given: object) -> None:
    error = refusal({"a": job()}, {"n": 1}, n=given)
    assert "not of the type int" in error.message
    assert error.hint == "Give a whole number, with all its digits."


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ({}, "jobs: must be a set of jobs"),
        ([job()], "jobs: must be a set of jobs"),
        ({"1": job()}, "begins with a letter"),
        ({"a b": job()}, "a name has letters"),
        ({"a": "true"}, "must be a set of fields"),
        ({"a": job(needs="prp"), "prep": job()}, "there is no job 'prp' in this workflow, perhaps prep"),
        ({"a": job(needs=["b", "b"]), "b": job()}, "names 'b' twice"),
        ({"a": job(needs="b"), "b": job(needs="c"), "c": job(needs="a")}, "a → b → c → a"),
        ({"a": job(needs="a")}, "a → a"),
        ({"a": job(after=12)}, "is not for jobs of a workflow"),
        ({"a": job(array="0-9")}, "is not for jobs of a workflow"),
        ({"a": job(**{"if": "sucess()"})}, r"there is no function sucess\(\)"),
        ({"a": job(**{"if": "1 <"})}, "ends too early"),
        ({"a": job(**{"if": 7})}, "must be an expression"),
        ({"a": job(**{"if": "params.lr < 1"})}, "there is no params.lr"),
        ({"a": job(), "b": job(**{"if": "jobs.a.outputs.x == 1"})}, "b does not need a"),
        ({"a": job(), "b": job(needs="a", **{"if": "jobs.a.output.x == 1"})}, "there is no jobs.a.output.x"),
        ({"a": {"command": "echo ${{ params.x }}"}}, "a shell would read"),
        ({"a": {"script": "#!/bin/sh\necho ${{ params.x }}"}}, "a shell would read"),
        ({"a": job(), "b": job(needs="a", gpus="${{ jobs.a.outputs.n }}")}, "cannot depend on what other jobs"),
        ({"a": job(command=["${{ success() }}"])}, "there is no function success"),
        ({"a": job(command=["${{ 1"])}, "is not closed"),
        ({"a": job(matrix={"x": []})}, "must be a list of values"),
        ({"a": job(matrix={"x": [[1]]})}, "must be finite numbers, true, false, or texts"),
        ({"a": job(matrix={"x": [float("nan")]})}, "must be finite numbers"),
        ({"a": job(matrix=[{"x": 1}, {"y": 1}])}, "the same names as the first row"),
        ({"a": job(matrix={"x y": [1]})}, "is no name"),
        ({"a": job(retries=-1)}, "a whole number from 0 to 100"),
        ({"a": job(retries=True)}, "a whole number from 0 to 100"),
        ({"a": job(retry_wait="soon")}, "retry_wait"),
        ({"a": job(continue_on_failure="yes")}, "must be true or false"),
        ({"a": job(), "b": job(needs_each="a", matrix={"x": [1]})}, "need a matrix both"),
        ({"a": job(matrix={"x": [1]}), "b": job(needs_each="a", matrix={"x": [2]})}, "no variant with x=2"),
        ({"a": job(matrix={"x": [1]}), "b": job(needs_each="a", matrix={"y": [2]})}, "share no values"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(jobs: Any, words: str) -> None:
    error = refusal(jobs)
    assert isinstance(error, Invalid)
    assert error.fields
    with pytest.raises(Invalid, match=words):
        expanded(jobs)


@pytest.mark.parametrize(
    ("params", "given", "words"),
    [
        ({"lr": {"type": "float"}}, {}, "has no default and was not given"),
        ({"lr": 0.1}, {"lr": "x"}, "'x' is not of the type float"),
        ({"n": 1}, {"n": "1.5"}, "not of the type int"),
        ({"n": 1}, {"m": "1"}, "there is no such parameter; there are n"),
        ({"on": True}, {"on": "maybe"}, "not of the type bool"),
        ({"m": {"choices": ["a", "b"], "default": "a"}}, {"m": "c"}, "must be one of a, b"),
        ({"m": {"kind": "a"}}, {}, "there is no such field"),
        ({"m": {"type": "list"}}, {}, "must be one of text, int, float, bool"),
        ({"1a": 1}, {}, "begins with no digit"),
        ({"n": 1}, {"n": float("inf")}, "finite"),
        ({"n": "x"}, {"n": "a\0b"}, "NUL"),
        ({"lr": 1, "LR": 2}, {}, "params.LR: is the same variable as lr"),
    ],
)
def test_parameters_are_checked(params: Any, given: Any, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        expanded({"a": job()}, params, **given)


def test_unknown_fields_of_the_file_are_refused_with_the_nearest() -> None:
    with pytest.raises(Invalid, match="there is no such field, perhaps params"):
        parse_workflow({"name": "x", "jobs": {"a": job()}, "parms": {}})
    with pytest.raises(Invalid, match="name: must be"):
        parse_workflow({"jobs": {"a": job()}})
    with pytest.raises(Invalid, match="must be a set of fields"):
        parse_workflow([])


def test_huge_matrices_are_refused_before_anything_is_made_of_them() -> None:
    hundred = list(range(100))
    error = refusal({"a": job(matrix=dict.fromkeys("abcdefgh", hundred))})
    assert "makes 10,000,000,000,000,000 jobs" in error.message
    half = {"x": hundred, "y": list(range(60))}
    assert "makes more than 10,000 jobs" in refusal({"a": job(matrix=half), "b": job(matrix=half)}).message
    pairs = {"a": job(matrix={"x": list(range(400))}), "b": job(needs="a", matrix={"x": list(range(400))})}
    assert "pairs of a job and one it needs" in refusal(pairs).message
    large = {"a": {"script": "#" * 500_000, "matrix": {"x": list(range(1000))}}}
    assert isinstance(refusal(large), TooLarge)


def test_jobs_nested_without_end_are_refused() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    assert "nested too deeply" in refusal({"a": job(env=deep)}).message


def test_five_thousand_jobs_are_laid_out() -> None:
    jobs = {"prep": job(), **{f"n{i}": job(needs=f"n{i - 1}" if i else "prep") for i in range(4999)}}
    made = expanded(json.loads(json.dumps(jobs)))
    assert len(made.jobs) == 5000
