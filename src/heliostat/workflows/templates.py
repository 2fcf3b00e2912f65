"""`${{ params.lr }}` inside of texts: found, checked, and filled in as words that no shell ever reads."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from heliostat.workflows.expressions import (
    EvaluationScope,
    Expression,
    ExpressionError,
    Value,
    as_text,
    evaluate,
    join_text,
    parse_expression,
)

OPEN, CLOSE = "${{", "}}"
_MOST = 100  # in one text
_LONGEST_KEPT = 1000  # characters of a text that is remembered
_LITERAL = " '{{' }}"  # what follows OPEN where it stands for itself: `$${{ '{{' }}` says `${{`


@dataclass(frozen=True, slots=True)
class Template:
    """Text and expressions in turn."""

    parts: tuple[str | Expression, ...]

    @property
    def expressions(self) -> Iterator[Expression]:
        return (part for part in self.parts if not isinstance(part, str))

    def fill(self, scope: EvaluationScope) -> Value:
        """An expression alone keeps its kind; within text it becomes text. Raises Wrong."""
        if len(self.parts) == 1 and not isinstance(self.parts[0], str):
            return evaluate(self.parts[0], scope)
        return join_text(part if isinstance(part, str) else as_text(evaluate(part, scope)) for part in self.parts)


def has_template(text: str) -> bool:
    return OPEN in text


def escape_template(text: str) -> str:
    """The text that gives this one when it is filled in: a value stays a value, whatever is in it."""
    return text.replace(OPEN, f"${OPEN}{_LITERAL}")


def parse_template(text: str) -> Template:
    """Raises Wrong."""
    return parse_cached(text) if len(text) <= _LONGEST_KEPT else _parse(text)


def _parse(text: str) -> Template:
    parts: list[str | Expression] = []
    before, *rest = text.split(OPEN)
    if sum(not piece.startswith(_LITERAL) for piece in rest) > _MOST:
        raise ExpressionError(f"a text may hold {_MOST} expressions")
    parts += [before] if before else []
    for piece in rest:
        inside, closing, after = piece.partition(CLOSE)
        if not closing:
            raise ExpressionError(f"{OPEN} is not closed: write {OPEN} params.lr {CLOSE}")
        parts.append(parse_expression(inside))
        parts += [after] if after else []
    return Template(tuple(parts))


parse_cached = lru_cache(maxsize=2000)(_parse)
"""Remembers: thousands of jobs may have the same words."""


def transform_templates(value: object, change: Callable[[str], object]) -> object:
    """The same lists and sets of fields, with each text that holds an expression changed."""
    if isinstance(value, str):
        return change(value) if has_template(value) else value
    if isinstance(value, list):
        return [transform_templates(one, change) for one in value]
    if isinstance(value, dict):
        return {name: transform_templates(one, change) for name, one in value.items()}
    return value
