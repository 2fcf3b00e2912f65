"""Templates: expressions such as `${{ params.lr }}` inside text, filled in without a shell."""

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
_MAX_EXPRESSIONS = 100  # in one text
_MAX_CACHED_LENGTH = 1000  # characters; longer templates are not cached
_LITERAL = " '{{' }}"  # follows OPEN in an escaped template: `$${{ '{{' }}` gives `${{`


@dataclass(frozen=True, slots=True)
class Template:
    """Alternating text and expressions."""

    parts: tuple[str | Expression, ...]

    @property
    def expressions(self) -> Iterator[Expression]:
        return (part for part in self.parts if not isinstance(part, str))

    def fill(self, scope: EvaluationScope) -> Value:
        """A single expression keeps its type; within text it becomes text. Raises ExpressionError."""
        if len(self.parts) == 1 and not isinstance(self.parts[0], str):
            return evaluate(self.parts[0], scope)
        return join_text(part if isinstance(part, str) else as_text(evaluate(part, scope)) for part in self.parts)


def has_template(text: str) -> bool:
    return OPEN in text


def escape_template(text: str) -> str:
    """A template that gives exactly this text when it is filled in."""
    return text.replace(OPEN, f"${OPEN}{_LITERAL}")


def parse_template(text: str) -> Template:
    """Raises ExpressionError."""
    return parse_cached(text) if len(text) <= _MAX_CACHED_LENGTH else _parse(text)


def _parse(text: str) -> Template:
    parts: list[str | Expression] = []
    before, *rest = text.split(OPEN)
    if sum(not segment.startswith(_LITERAL) for segment in rest) > _MAX_EXPRESSIONS:
        raise ExpressionError(f"a text may contain at most {_MAX_EXPRESSIONS} expressions")
    parts += [before] if before else []
    for segment in rest:
        inside, closing, after = segment.partition(CLOSE)
        if not closing:
            raise ExpressionError(f"{OPEN} is not closed: write {OPEN} params.lr {CLOSE}")
        parts.append(parse_expression(inside))
        parts += [after] if after else []
    return Template(tuple(parts))


parse_cached = lru_cache(maxsize=2000)(_parse)
"""Cached, because thousands of jobs may have the same texts."""


def transform_templates(value: object, change: Callable[[str], object]) -> object:
    """The same structure of lists and mappings, with each text that contains an expression replaced."""
    if isinstance(value, str):
        return change(value) if has_template(value) else value
    if isinstance(value, list):
        return [transform_templates(item, change) for item in value]
    if isinstance(value, dict):
        return {name: transform_templates(item, change) for name, item in value.items()}
    return value
