"""Parameters of notebooks as they are typed."""

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from heliostat.cli.notebooks import join_name_value_pairs, parse_parameters


def test_a_name_and_its_value_may_be_two_words() -> None:
    words = ["a.ipynb", "-p", "lr", "-0.1", "--raw", "zip", "01234", "-p", "x=a=b", "--gpus", "1"]
    assert join_name_value_pairs(words) == [
        "a.ipynb",
        "-p",
        "lr=-0.1",
        "--raw",
        "zip=01234",
        "-p",
        "x=a=b",
        "--gpus",
        "1",
    ]


def test_nothing_is_joined_behind_two_dashes_or_without_a_value() -> None:
    assert join_name_value_pairs(["--", "-p", "a", "b"]) == ["--", "-p", "a", "b"]
    assert join_name_value_pairs(["-p", "lr"]) == ["-p", "lr"]


@given(st.lists(st.tuples(st.from_regex(r"[a-z]{1,3}", fullmatch=True), st.text(max_size=5))))
def test_every_pair_comes_out_as_it_went_in(pairs: list[tuple[str, str]]) -> None:
    words = [word for name, value in pairs for word in ("-r", name, value)]
    raw = join_name_value_pairs(words)[1::2]
    assert parse_parameters([], raw, []) == dict(pairs)


def test_of_several_the_last_way_counts() -> None:
    found = parse_parameters(["a=1", "b=1"], ["b=2"], ["{a: 0, c: [1, {d: null}], e: text}"])
    assert found == {"a": 1, "b": "2", "c": [1, {"d": None}], "e": "text"}


@pytest.mark.parametrize(
    "text", ["[1]", "a", "{a: &a [*a]}", "[" * 5000, "{1: 2}", "{a: .inf}", "{a: [", "{a: {1: 2}}"]
)
def test_yaml_that_json_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_parameters([], [], [text])


@pytest.mark.parametrize("text", ["lr", "=1"])
def test_half_a_pair_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="a name and a value"):
        parse_parameters([text], [], [])
