"""The expression language of conditions and values."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as some

from heliostat.workflows.expressions import (
    MAX_EXPRESSION_LENGTH,
    EvaluationScope,
    ExpressionError,
    NamePath,
    Value,
    as_text,
    evaluate,
    find_references,
    is_truthy,
    parse_expression,
)
from heliostat.workflows.templates import parse_template

_KNOWN: dict[NamePath, Value] = {
    ("params", "lr"): 0.1,
    ("params", "mode"): "full",
    ("jobs", "a", "outputs", "x"): "7",
}


def look_up(path: NamePath) -> Value:
    if path not in _KNOWN:
        raise ExpressionError(f"there is no {'.'.join(path)}")
    return _KNOWN[path]


SCOPE = EvaluationScope(look_up, {"success": lambda: True, "failure": lambda: False})


def told(text: str) -> Value:
    return evaluate(parse_expression(text), SCOPE)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 < 2", True),
        ("params.lr == 0.1", True),
        ("params.lr == '0.1'", True),
        ("params.lr <= 0.05 or params.mode == 'full'", True),
        ("!(params.mode == 'full')", False),
        ("not not true", True),
        ("failure() || success() && 1 == 2", False),
        ("jobs.a.outputs.x >= 7", True),
        ('params.mode != "quick"', True),
        ("null == null", True),
        ("true and 'yes'", "yes"),
        ("-3 < 2e1", True),
        ("'a' == 'b'", False),
        ("true == 'true'", True),
    ],
)
def test_expressions_have_their_values(text: str, value: Value) -> None:
    assert told(text) == value


def test_and_and_or_short_circuit() -> None:
    assert told("true or nothing.like.this") is True
    assert told("false and nothing.like.this") is False


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expression is incomplete"),
        ("1 + x", "unexpected characters"),
        ("a.", "expression is incomplete"),
        ("(1", "')' is missing"),
        ("f(1 2)", "expected ','"),
        ("1 2", "unexpected '2'"),
        ("'open", "unexpected characters"),
        ("and", "unexpected 'and'"),
        ("__import__('os').system('id')", "unexpected '.'"),
        ("[x for x in y]", "unexpected characters"),
        ("a" * (MAX_EXPRESSION_LENGTH + 1), "may have at most 1000 characters"),
        ("(" * 100 + "1" + ")" * 100, "nested too deeply"),
        ("join(1e999) == 'x'", "the number '1e999' is too large"),
        ("-9e400 < 1", "the number '-9e400' is too large"),
    ],
)
def test_an_invalid_expression_gives_a_reason(text: str, why: str) -> None:
    with pytest.raises(ExpressionError, match=why.replace("(", r"\(").replace(")", r"\)")):
        parse_expression(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("shell('id')", "unknown function shell"),
        ("success(1)", "has wrong arguments"),
        ("params.mode < 3", "< needs numbers"),
        ("params.__class__", "there is no params.__class__"),
    ],
)
def test_an_expression_without_a_value_gives_a_reason(text: str, why: str) -> None:
    with pytest.raises(ExpressionError, match=why):
        told(text)


def test_all_names_of_an_expression_are_found() -> None:
    found = find_references(parse_expression("not (params.lr < 1) and success(jobs.a.state)"))
    assert list(found) == [("params", "lr"), ("jobs", "a", "state")]


@given(some.text(alphabet="params.lr()<>=!&|'\" 0123456789andornotuccessfailure,-", max_size=120))
def test_any_text_is_parsed_or_refused_with_a_reason(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        told(text)


@given(some.text(max_size=300))
def test_no_text_has_side_effects(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        evaluate(parse_expression(text), SCOPE)
    with contextlib.suppress(ExpressionError):
        parse_template(text).fill(SCOPE)


def test_a_single_expression_keeps_its_type_and_becomes_text_within_text() -> None:
    assert parse_template("${{ params.lr }}").fill(SCOPE) == 0.1
    assert parse_template("--lr=${{ params.lr }},${{ 2.0 }}").fill(SCOPE) == "--lr=0.1,2"
    with pytest.raises(ExpressionError, match="not closed"):
        parse_template("${{ params.lr")


def test_what_counts_as_true_in_text() -> None:
    assert [is_truthy(one) for one in ("false", "0", "", " no ", "x", "1")] == [
        False,
        False,
        False,
        False,
        True,
        True,
    ]
    assert as_text(["a", 1.0, True, None]) == "a,1,true,"


def test_every_number_has_a_text() -> None:
    assert [as_text(one) for one in (2.0, 0.5, float("inf"), float("nan"))] == ["2", "0.5", "inf", "nan"]
