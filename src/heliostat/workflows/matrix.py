"""Matrices: variants of a job, from all combinations of values or from a list."""

import math
from collections.abc import Mapping
from itertools import product

from heliostat.workflows.expressions import Value, as_number
from heliostat.workflows.parameters import NAME_PATTERN, check_unique_variables
from heliostat.workflows.validation_errors import invalid_field

MAX_VARIANTS = 10_000
_MAX_NAMES = 50
_MAX_CHARACTERS = 10_000
ValueMap = Mapping[str, Value]


def parse_matrix(field: str, given: object) -> tuple[ValueMap, ...]:
    """`{lr: [0.1, 0.01], seed: [1, 2]}` gives four variants, `[{lr: 0.1, seed: 1}, …]` one per row.
    Raises Invalid."""
    if isinstance(given, list):
        if not 0 < len(given) <= MAX_VARIANTS:
            raise invalid_field(field, f"must have 1 to {MAX_VARIANTS} rows")
        check_unique_variables(field, given[0] if isinstance(given[0], Mapping) else ())
        return tuple(_row(f"{field}.{index}", row, given[0]) for index, row in enumerate(given))
    if not isinstance(given, Mapping) or not 0 < len(given) <= _MAX_NAMES:
        raise invalid_field(field, "must be a mapping of lists, such as `lr: [0.1, 0.01]`, or a list of mappings")
    names = [_name(field, name) for name in given]
    check_unique_variables(field, names)
    for name, values in given.items():
        if not isinstance(values, list) or not values:
            raise invalid_field(f"{field}.{name}", "must be a list of values, such as [0.1, 0.01]")
    count = math.prod(len(values) for values in given.values())
    if count > MAX_VARIANTS:
        raise invalid_field(field, f"gives {count:,} jobs; the limit is {MAX_VARIANTS:,}", "Remove some values.")
    columns = [[_value(f"{field}.{name}", item) for item in given[name]] for name in given]
    return tuple(dict(zip(names, row, strict=True)) for row in product(*columns))


def format_values(values: ValueMap) -> str:
    """`lr=0.1, seed=1`."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _row(field: str, given: object, first: object) -> ValueMap:
    if not isinstance(given, Mapping) or not 0 < len(given) <= _MAX_NAMES:
        raise invalid_field(field, "must be a mapping of values, such as {lr: 0.1, seed: 1}")
    if not isinstance(first, Mapping) or set(given) != set(first):
        raise invalid_field(field, "must have the same names as the first row")
    return {_name(field, name): _value(f"{field}.{name}", value) for name, value in given.items()}


def _name(field: str, name: object) -> str:
    if not isinstance(name, str) or NAME_PATTERN.fullmatch(name) is None:
        raise invalid_field(
            field, f"{str(name)[:60]!a} is not a name; use letters, digits and _, and do not begin with a digit"
        )
    return name


def _value(field: str, value: object) -> Value:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and as_number(value) is not None:
        return value
    if isinstance(value, str) and len(value) <= _MAX_CHARACTERS and "\0" not in value:
        return value
    raise invalid_field(
        field, f"must be finite numbers, true, false, or text of at most {_MAX_CHARACTERS} characters"
    )
