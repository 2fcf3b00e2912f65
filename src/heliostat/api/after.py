"""The fields of a job that say what it waits for, as bodies write them."""

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from heliostat.models import Parent, Rule
from heliostat.models.dependencies import MOST_PAIRS, parse_begin, parse_parents


def _begin(value: object) -> datetime | timedelta | None:
    if value is None or isinstance(value, datetime | timedelta):
        return value
    if not isinstance(value, str):
        raise ValueError("write a time as text: 2026-12-01T08:00Z, or +2h for in two hours")
    return parse_begin(value)


_NAMES = ("after", "after_ok", "after_any", "after_failed", "after_each")
_ONE = {"type": ["integer", "string"]}
Parents = Annotated[
    tuple[str, ...],
    BeforeValidator(parse_parents),
    WithJsonSchema({"anyOf": [_ONE, {"type": "array", "items": _ONE}], "default": []}),
]
Begin = Annotated[
    datetime | timedelta | None, BeforeValidator(_begin), WithJsonSchema({"type": ["string", "null"]})
]


def refuse_too_many(jobs: list[object]) -> None:
    """Of the bodies of one request, before each reference is read."""
    named = [value for job in jobs if isinstance(job, dict) for name in _NAMES if (value := job.get(name))]
    count = sum(len(one) if isinstance(one, list) else str(one).count(",") + 1 for one in named)
    if count > MOST_PAIRS:
        raise ValueError(f"the jobs of one request may wait for {MOST_PAIRS} others in all")


def parents(
    ok: tuple[str, ...], any_end: tuple[str, ...], failed: tuple[str, ...], each: tuple[str, ...]
) -> tuple[Parent, ...]:
    by_rule = ((Rule.OK, ok), (Rule.ANY, any_end), (Rule.FAILED, failed))
    found = [Parent(reference, rule) for rule, references in by_rule for reference in references]
    return (*found, *(Parent(reference, Rule.OK, each=True) for reference in each))
