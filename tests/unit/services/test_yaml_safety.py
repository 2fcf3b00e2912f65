"""What may stand in YAML from anybody."""

import pytest

from heliostat.services.yaml_safety import find_yaml_problem


@pytest.mark.parametrize(
    "text", ["[" * 5000, "- " * 5000, "{a: " * 5000, "? " * 5000, '["]",' * 5000, "[a," * 9000]
)
def test_what_is_nested_without_end_is_not_read_to_its_end(text: str) -> None:
    assert find_yaml_problem(text) == "is nested too deeply"


def test_nothing_may_refer_to_itself() -> None:
    assert find_yaml_problem("a: &a [x, x]\nb: [*a, *a]\n") == "refers to parts of itself"


@pytest.mark.parametrize("text", ["", "a: [1, {b: 2}]", "[" * 50 + "]" * 50, "a: [b", "\t", "a: \0"])
def test_what_is_plain_or_no_yaml_at_all_is_left_to_who_reads_it(text: str) -> None:
    assert find_yaml_problem(text) is None
