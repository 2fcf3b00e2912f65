"""The fields of a job that say what it waits for, as bodies write them."""

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from heliostat.models import Parent, Rule
from heliostat.models.dependencies import parse_begin, parse_parents


def _begin(value: object) -> datetime | timedelta | None:
    if value is None or isinstance(value, datetime | timedelta):
        return value
    if not isinstance(value, str):
        raise ValueError("write a time as text: 2026-12-01T08:00Z, or +2h for in two hours")
    return parse_begin(value)


_ONE = {"type": ["integer", "string"]}
Parents = Annotated[
    tuple[str, ...],
    BeforeValidator(parse_parents),
    WithJsonSchema({"anyOf": [_ONE, {"type": "array", "items": _ONE}], "default": []}),
]
Begin = Annotated[
    datetime | timedelta | None, BeforeValidator(_begin), WithJsonSchema({"type": ["string", "null"]})
]


def parents(
    ok: tuple[str, ...], any_end: tuple[str, ...], failed: tuple[str, ...], each: tuple[str, ...]
) -> tuple[Parent, ...]:
    by_rule = ((Rule.OK, ok), (Rule.ANY, any_end), (Rule.FAILED, failed))
    found = [Parent(reference, rule) for rule, references in by_rule for reference in references]
    return (*found, *(Parent(reference, Rule.OK, each=True) for reference in each))
