"""Sweep files: values of each run, and validation errors."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from heliostat.errors import HeliostatError, Invalid, TooLarge
from heliostat.workflows.sweep_file import (
    SweepDocument,
    check_expanded_size,
    fill_words,
    parameter_environment,
    parse_sweep,
)


def sweep(**fields: Any) -> SweepDocument:
    return parse_sweep({"name": "lr", "job": {"command": ["run", "{lr}"]}, **fields})


def test_a_grid_gives_all_combinations_and_a_list_its_rows() -> None:
    made = sweep(grid={"lr": [0.1, 0.01], "seed": [1, 2]}, at_once=3)
    assert [dict(row) for row in made.variants][:2] == [{"lr": 0.1, "seed": 1}, {"lr": 0.1, "seed": 2}]
    assert made.job_fields["array"] == "0-3%3"
    assert [dict(row) for row in sweep(list=[{"lr": 1}, {"lr": 7}]).variants] == [{"lr": 1}, {"lr": 7}]


def test_random_samples_depend_only_on_the_seed() -> None:
    values = {"lr": {"from": 1e-4, "to": 0.1, "log": True}, "n": {"from": 1, "to": 9}, "kind": ["a", "b"]}
    one, same, other = (sweep(random={"count": 50, "seed": seed, "values": values}).variants for seed in (7, 7, 8))
    assert one == same != other
    assert all(1e-4 <= row["lr"] <= 0.1 for row in one)  # type: ignore[operator]
    assert {row["kind"] for row in one} == {"a", "b"}
    assert all(isinstance(row["n"], int) and 1 <= row["n"] <= 9 for row in one)
    assert sum(row["lr"] < 0.003 for row in one) > 10, "small ones are as likely as large ones"  # type: ignore[operator]


def test_values_become_arguments_and_environment_variables() -> None:
    values = {"lr": 0.1, "name": "a b; $(id)", "on": True, "n": 3.0}
    words = ("--lr={lr}", "{name}", "{on}{n}", "{other} {} {{lr}}", "{lr}{lr}")
    assert fill_words(words, values) == ("--lr=0.1", "a b; $(id)", "true3", "{other} {} {lr}", "0.10.1")
    assert parameter_environment(values)["HELIOSTAT_PARAM_NAME"] == "a b; $(id)"


def test_braces_that_name_no_parameter_stay() -> None:
    words = ["{{x}}", "${HOME}", '{"a": 1}', "{}", "{0}", "{lr}"]
    assert sweep(grid={"lr": [1]}, job={"command": words}).job_fields["command"] == words
    assert fill_words(words, {"lr": 1}) == ("{x}", "${HOME}", '{"a": 1}', "{}", "{0}", "1")


def test_filled_in_values_are_not_expanded_again() -> None:
    assert fill_words(("{a}",), {"a": "{b}", "b": "x"}) == ("{b}",)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "exactly one of grid, list and random"),
        ({"grid": {"a": [1]}, "list": [{"a": 1}]}, "exactly one of grid, list and random"),
        ({"grid": {"a": []}}, "must be a list of values"),
        ({"grid": {"a": [1]}, "grdi": 1}, r"unknown field \(did you mean grid\?\)"),
        ({"grid": {"lr": [1]}, "at_once": 0}, "from 1 to 10000"),
        ({"grid": {"lr": [1]}, "retries": "x"}, "from 0 to 100"),
        ({"grid": {"a": [1]}, "name": "../x"}, "letters, digits"),
        ({"grid": {"a": [1]}, "job": []}, "must be a mapping of fields"),
        ({"grid": {"a": [1]}, "job": {"command": ["x"], "array": "0-3"}}, "is not allowed in a sweep"),
        ({"grid": {"a": [1]}, "job": {"command": "echo {a}"}}, "that a shell reads"),
        ({"grid": {"a": [1]}, "job": {"script": "#!/bin/sh\necho {a}"}}, "that a shell reads"),
        (
            {"grid": {"lr": [1]}, "job": {"command": ["x", "{lr}", "{lrr}"]}},
            r"job.command: there is no parameter lrr \(did you mean lr\?\); known: lr",
        ),
        (
            {"grid": {"lr": [1]}, "job": {"command": ["x"], "env": {"A": "{b}"}}},
            "job.env: there is no parameter b",
        ),
        ({"random": {"values": {"a": [1]}}}, "whole number from 1 to 10000"),
        ({"random": {"count": 10**9, "values": {"a": [1]}}}, "whole number from 1 to 10000"),
        ({"random": {"count": 1, "values": {}}}, "must be a mapping of names"),
        ({"random": {"count": 1, "values": {"a": {"from": 2, "to": 1}}}}, "from at most to"),
        ({"random": {"count": 1, "values": {"a": {"from": 0, "to": 1, "log": True}}}}, "above 0"),
        ({"random": {"count": 1, "values": {"a": {"from": "x", "to": 1}}}}, "must be numbers"),
        ({"random": {"count": 1, "seed": 1.5, "values": {"a": [1]}}}, "must be a whole number"),
        ({"random": {"count": 1, "sed": 1, "values": {"a": [1]}}}, "must have count, seed and values"),
        ({"grid": {"a": list(range(200)), "b": list(range(200))}}, "gives 40,000 jobs"),
    ],
)
def test_errors_name_the_field(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words) as caught:
        sweep(**fields)
    assert caught.value.fields
    assert caught.value.hint


def test_a_sweep_that_would_expand_to_gigabytes_is_refused() -> None:
    table = sweep(list=[{"lr": "x" * 10_000}] * 1000).variants
    with pytest.raises(TooLarge):
        check_expanded_size(["{lr}{lr}"] * 10, table)
    check_expanded_size(["{lr}"], table[:10])


@given(some.recursive(some.none() | some.booleans() | some.floats() | some.text(max_size=8), some.lists))
def test_any_document_is_parsed_or_refused_with_a_reason(value: object) -> None:
    for fields in ({"grid": value}, {"list": value}, {"random": value}, {"random": {"count": 2, "values": value}}):
        try:
            sweep(**fields)
        except HeliostatError as error:
            assert error.hint  # noqa: PT017 - it may be read as well
