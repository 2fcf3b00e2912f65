"""A small language for conditions and values: `success() and params.lr < 0.1`. Parsed, never evaluated as Python.

    either  = both { ("or" | "||") both }
    both    = denied { ("and" | "&&") denied }
    denied  = ("not" | "!") denied | compared
    compared = value [ ("==" | "!=" | "<" | "<=" | ">" | ">=") value ]
    value   = NUMBER | 'TEXT' | true | false | null | NAME { "." NAME } | NAME "(" [ either { "," either } ] ")"
            | "(" either ")"

It knows no loops, no assignment and no functions but those its scope names; its cost is that of its length.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

MAX_EXPRESSION_LENGTH = 1000  # characters of one expression
MAX_WORD_BYTES = 128 * 1024 - 1  # bytes of a word: Linux takes no longer one
_DEEPEST = 40
_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d{1,15}(?:\.\d{1,15})?(?:[eE][+-]?\d{1,3})?(?![\w.]))"
    r"|(?P<text>'[^']*'|\"[^\"]*\")"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_-]*)"
    r"|(?P<sign>==|!=|<=|>=|&&|\|\||[<>!().,]))",
    re.ASCII,
)
_CONSTANTS: dict[str, "Value"] = {"true": True, "false": False, "null": None}
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_SAME = {"&&": "and", "||": "or", "!": "not"}

Value = str | float | int | bool | None | list["Value"]
NamePath = tuple[str, ...]


class ExpressionError(ValueError):
    """The expression cannot be read, or has no value; says why in a sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class Constant:
    value: Value


@dataclass(frozen=True, slots=True)
class Reference:
    path: NamePath


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: tuple["Expression", ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """Of `not` only the first counts."""

    operator: str  # and, or, not, or a comparison
    left: "Expression"
    right: "Expression"


Expression = Constant | Reference | Call | Operation


@dataclass(frozen=True, slots=True)
class EvaluationScope:
    """What names and functions mean."""

    look_up: Callable[[NamePath], Value]  # raises Wrong
    functions: Mapping[str, Callable[..., Value]] = field(default_factory=dict)


def parse_expression(text: str) -> Expression:
    """Raises Wrong."""
    if len(text) > MAX_EXPRESSION_LENGTH:
        raise ExpressionError(
            f"an expression may have {MAX_EXPRESSION_LENGTH} characters, this one has {len(text)}"
        )
    reader = _Reader(_tokens(text))
    found = reader.either(0)
    if reader.next is not None:
        raise ExpressionError(f"did not expect {reader.next!a}")
    return found


def find_references(expression: Expression) -> Iterator[NamePath]:
    """All that it looks up."""
    if isinstance(expression, Reference):
        yield expression.path
    for part in _parts(expression):
        yield from find_references(part)


def find_calls(expression: Expression) -> Iterator[Call]:
    if isinstance(expression, Call):
        yield expression
    for part in _parts(expression):
        yield from find_calls(part)


def evaluate(expression: Expression, scope: EvaluationScope) -> Value:
    """Raises Wrong when it has none."""
    if isinstance(expression, Constant):
        return expression.value
    if isinstance(expression, Reference):
        return scope.look_up(expression.path)
    if isinstance(expression, Call):
        return _called(expression, scope)
    first = evaluate(expression.left, scope)
    if expression.operator == "not":
        return not is_truthy(first)
    if expression.operator in ("and", "or"):
        return first if is_truthy(first) == (expression.operator == "or") else evaluate(expression.right, scope)
    return _compared(expression.operator, first, evaluate(expression.right, scope))


def is_truthy(value: Value) -> bool:
    """What a job hands on is text: `false`, `0` and nothing are not true there either."""
    return value.strip().lower() not in ("", "false", "0", "no") if isinstance(value, str) else bool(value)


def as_number(value: Value) -> float | int | None:
    """Also of text that is one. Whole numbers keep all their digits."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        found = float(value) if not isinstance(value, str) or len(value) <= 40 else None
    except (ValueError, OverflowError):
        return None
    if found is None or not abs(found) < float("inf"):
        return None
    is_whole = isinstance(value, int) or (isinstance(value, str) and value.strip().lstrip("+-").isdecimal())
    return int(value) if is_whole else found


def as_text(value: Value) -> str:
    """As a word of a command has it. Raises Wrong when a list makes it longer than a word can be."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return join_text(f",{as_text(one)}" if place else as_text(one) for place, one in enumerate(value))
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "" if value is None else str(value)


def join_text(parts: Iterable[str]) -> str:
    """Raises Wrong as soon as it is longer than a word can be."""
    found: list[str] = []
    length = 0
    for part in parts:
        length += len(part)
        if length > MAX_WORD_BYTES:
            raise ExpressionError(f"a value is longer than a word can be ({MAX_WORD_BYTES:,} bytes)")
        found.append(part)
    return "".join(found)


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise ExpressionError(f"cannot read {text[at : at + 20].strip()!a}")
        token = match.group().strip()
        found.append(_SAME.get(token, token))
        at = match.end()
    return found


class _Reader:
    """Goes through the tokens once, from left to right."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens, self._at = tokens, 0

    @property
    def next(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def either(self, depth: int) -> Expression:
        return self._joined("or", self._both, depth)

    def _both(self, depth: int) -> Expression:
        return self._joined("and", self._denied, depth)

    def _joined(self, sign: str, part: Callable[[int], Expression], depth: int) -> Expression:
        if depth > _DEEPEST:
            raise ExpressionError("it is nested too deeply")
        found = part(depth)
        while self._takes(sign):
            found = Operation(sign, found, part(depth))
        return found

    def _denied(self, depth: int) -> Expression:
        denials = 0
        while self._takes("not"):
            denials += 1
        found = self._compared(depth)
        return Operation("not", found, found) if denials % 2 else found

    def _compared(self, depth: int) -> Expression:
        found = self._value(depth)
        sign = self.next
        if sign not in _COMPARISONS or sign is None:
            return found
        self._at += 1
        return Operation(sign, found, self._value(depth))

    def _value(self, depth: int) -> Expression:
        if self._takes("("):
            found = self.either(depth + 1)
            self._need(")")
            return found
        token = self._take()
        if token[0] in "'\"":
            return Constant(token[1:-1])
        if token[0].isdigit() or token[0] == "-":
            return Constant(_number(token))
        if not (token[0].isalpha() or token[0] == "_") or token in ("and", "or", "not"):
            raise ExpressionError(f"did not expect {token!a}")
        if token in _CONSTANTS:
            return Constant(_CONSTANTS[token])
        return Call(token, self._arguments(depth)) if self._takes("(") else Reference(self._path(token))

    def _path(self, first: str) -> NamePath:
        path = [first]
        while self._takes("."):
            path.append(self._take())
        return tuple(path)

    def _arguments(self, depth: int) -> tuple[Expression, ...]:
        found: list[Expression] = []
        while not self._takes(")"):
            if found:
                self._need(",")
            found.append(self.either(depth + 1))
        return tuple(found)

    def _take(self) -> str:
        if self.next is None:
            raise ExpressionError("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _takes(self, token: str) -> bool:
        if self.next != token:
            return False
        self._at += 1
        return True

    def _need(self, token: str) -> None:
        if not self._takes(token):
            raise ExpressionError(
                f"{token!a} is missing" if self.next is None else f"expected {token!a}, not {self.next!a}"
            )


def _number(token: str) -> float | int:
    found = float(token) if set(token) & set(".eE") else int(token)
    if as_number(found) is None:
        raise ExpressionError(f"{token!a} is too large a number")
    return found


def _parts(expression: Expression) -> tuple[Expression, ...]:
    if isinstance(expression, Call):
        return expression.arguments
    if not isinstance(expression, Operation):
        return ()
    return (expression.left,) if expression.operator == "not" else (expression.left, expression.right)


def _called(call: Call, scope: EvaluationScope) -> Value:
    if call.function not in scope.functions:
        raise ExpressionError(f"there is no function {call.function[:40]}(); there are {_listed(scope.functions)}")
    try:
        return scope.functions[call.function](*(evaluate(one, scope) for one in call.arguments))
    except TypeError:
        raise ExpressionError(f"{call.function}() takes other arguments") from None


def _listed(functions: Mapping[str, object]) -> str:
    return ", ".join(f"{name}()" for name in sorted(functions)) or "none here"


def _compared(sign: str, first: Value, second: Value) -> bool:
    if isinstance(first, bool) or isinstance(second, bool):
        first, second = is_truthy(first), is_truthy(second)
    one, other = as_number(first), as_number(second)
    if sign in ("==", "!="):
        same = one == other if one is not None and other is not None else first == second
        return same == (sign == "==")
    if one is None or other is None:
        raise ExpressionError(f"{as_text(first)[:40]!a} {sign} {as_text(second)[:40]!a} does not compare numbers")
    return {"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}[sign]
