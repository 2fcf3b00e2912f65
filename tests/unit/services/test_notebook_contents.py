"""Validation of notebooks and their parameters."""

import json
from typing import Any

import pytest

from heliostat.errors import Invalid, TooLarge
from heliostat.models.notebooks import MAX_NOTEBOOK_BYTES, parse_parameter_value
from heliostat.services.batch_notebooks import check_notebook_parameters, check_notebook_size, count_cells
from support.notebooks import make_notebook


def as_bytes(content: object) -> bytes:
    return json.dumps(content).encode()


def test_the_cells_of_a_notebook_are_counted() -> None:
    assert count_cells(as_bytes(make_notebook(["1", "2", "3"]))) == 3
    lines = {"cell_type": "markdown", "source": ["# A", "title"]}
    assert count_cells(as_bytes(make_notebook([]) | {"cells": [lines]})) == 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no nbformat"),
        (as_bytes({"nbformat": "4"}), "no nbformat"),
        (as_bytes(make_notebook([]) | {"nbformat": 3}), "its format is 3"),
        (as_bytes(make_notebook([]) | {"cells": {}}), "no cells"),
        (as_bytes(make_notebook([]) | {"metadata": []}), "no metadata"),
        (as_bytes(make_notebook([]) | {"cells": ["x"]}), "cell 1"),
        (as_bytes(make_notebook([]) | {"cells": [{"cell_type": "code", "source": 5}]}), "cell 1"),
        (as_bytes(make_notebook([]) | {"cells": [{"cell_type": "sound", "source": ""}]}), "cell 1"),
    ],
)
def test_an_invalid_notebook_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(Invalid, match=why) as refused:
        count_cells(data)
    assert "notebook" in refused.value.fields


def test_a_notebook_that_is_too_large_is_refused() -> None:
    check_notebook_size(MAX_NOTEBOOK_BYTES)
    with pytest.raises(TooLarge, match="32 MiB"):
        check_notebook_size(MAX_NOTEBOOK_BYTES + 1)


@pytest.mark.parametrize(
    "parameters",
    [
        {"a b": 1},
        {"1a": 1},
        {"x=1;y": 1},
        {"": 1},
        {"größe": 1},
        {"x": float("inf")},
        {"x": [float("nan")]},
        {"x": "y" * 70_000},
        {f"x{number}": 1 for number in range(300)},
    ],
)
def test_parameters_that_cannot_be_set_are_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refused:
        check_notebook_parameters(parameters)
    assert "parameters" in refused.value.fields


def test_json_parameters_are_accepted() -> None:
    check_notebook_parameters(
        {"lr": 0.1, "names": ["a", None], "deep": {"x": {"y": True}}, "r.name": "z", "_": 2**70}
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-1", -1),
        ("0.1", 0.1),
        ("1e-3", 0.001),
        ("True", True),
        ("False", False),
        ("None", None),
        ("true", "true"),
        ("resnet", "resnet"),
        ("", ""),
        ("nan", "nan"),
        ("-inf", "-inf"),
        ("0x10", "0x10"),
    ],
)
def test_typed_parameters_are_parsed(text: str, value: object) -> None:
    found = parse_parameter_value(text)
    assert (found, type(found)) == (value, type(value))
