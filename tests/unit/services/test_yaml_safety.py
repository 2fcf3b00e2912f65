"""Checks of untrusted YAML."""

import pytest

from heliostat.services.yaml_safety import find_yaml_problem


@pytest.mark.parametrize(
    "text", ["[" * 5000, "- " * 5000, "{a: " * 5000, "? " * 5000, '["]",' * 5000, "[a," * 9000]
)
def test_deep_nesting_is_refused_early(text: str) -> None:
    assert find_yaml_problem(text) == "is nested too deeply"


def test_aliases_are_refused() -> None:
    assert find_yaml_problem("a: &a [x, x]\nb: [*a, *a]\n") == "refers to parts of itself"


def test_a_key_is_written_once_in_a_mapping() -> None:
    assert find_yaml_problem("a: {b: a, c: [b, b]}\nb: b\n? [a]\n: {b: 1}\n") is None
    assert find_yaml_problem("a: 1\nb: {c: 1}\na: 2\n") == "has a duplicate key in line 3"
    assert find_yaml_problem("a: {b: 1, c: {}, b: 2}\n") == "has a duplicate key in line 1"


@pytest.mark.parametrize("text", ["", "a: [1, {b: 2}]", "[" * 50 + "]" * 50, "a: [b", "\t", "a: \0"])
def test_plain_or_invalid_yaml_is_left_to_the_parser(text: str) -> None:
    assert find_yaml_problem(text) is None
