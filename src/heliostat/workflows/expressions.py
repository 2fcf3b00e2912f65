"""Expression language for conditions and values: `success() and params.lr < 0.1`. Never evaluated as Python.

    expression = conjunction { ("or" | "||") conjunction }
    conjunction = negation { ("and" | "&&") negation }
    negation = ("not" | "!") negation | comparison
    comparison = value [ ("==" | "!=" | "<" | "<=" | ">" | ">=") value ]
    value = NUMBER | 'TEXT' | true | false | null | NAME { "." NAME }
          | NAME "(" [ expression { "," expression } ] ")" | "(" expression ")"

It has no loops, no assignments and only the functions of its scope; the cost is linear in its length.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

MAX_EXPRESSION_LENGTH = 1000  # characters of one expression
MAX_WORD_BYTES = 128 * 1024 - 1  # of one command-line argument: the limit of Linux
_MAX_DEPTH = 40
_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d{1,15}(?:\.\d{1,15})?(?:[eE][+-]?\d{1,3})?(?![\w.]))"
    r"|(?P<text>'[^']*'|\"[^\"]*\")"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_-]*)"
    r"|(?P<sign>==|!=|<=|>=|&&|\|\||[<>!().,]))",
    re.ASCII,
)
_CONSTANTS: dict[str, "Value"] = {"true": True, "false": False, "null": None}
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_SYNONYMS = {"&&": "and", "||": "or", "!": "not"}

Value = str | float | int | bool | None | list["Value"]
NamePath = tuple[str, ...]


class ExpressionError(ValueError):
    """The expression cannot be parsed or has no value. The message is a clause without a full stop."""


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
    """`not` uses only the left operand."""

    operator: str  # and, or, not, or a comparison
    left: "Expression"
    right: "Expression"


Expression = Constant | Reference | Call | Operation


@dataclass(frozen=True, slots=True)
class EvaluationScope:
    """Values of names, and functions."""

    look_up: Callable[[NamePath], Value]  # raises ExpressionError
    functions: Mapping[str, Callable[..., Value]] = field(default_factory=dict)


def parse_expression(text: str) -> Expression:
    """Raises ExpressionError."""
    if len(text) > MAX_EXPRESSION_LENGTH:
        raise ExpressionError(
            f"an expression may have at most {MAX_EXPRESSION_LENGTH} characters; this one has {len(text)}"
        )
    reader = _Reader(_tokens(text))
    result = reader.disjunction(0)
    if reader.next is not None:
        raise ExpressionError(f"unexpected {reader.next!a}")
    return result


def find_references(expression: Expression) -> Iterator[NamePath]:
    """All names that it refers to."""
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
    """Raises ExpressionError if it has no value."""
    if isinstance(expression, Constant):
        return expression.value
    if isinstance(expression, Reference):
        return scope.look_up(expression.path)
    if isinstance(expression, Call):
        return _evaluate_call(expression, scope)
    first = evaluate(expression.left, scope)
    if expression.operator == "not":
        return not is_truthy(first)
    if expression.operator in ("and", "or"):
        return first if is_truthy(first) == (expression.operator == "or") else evaluate(expression.right, scope)
    return _compare(expression.operator, first, evaluate(expression.right, scope))


def is_truthy(value: Value) -> bool:
    """Outputs of jobs are text: `false`, `no`, `0` and empty text are false."""
    return value.strip().lower() not in ("", "false", "0", "no") if isinstance(value, str) else bool(value)


def as_number(value: Value) -> float | int | None:
    """None: not a number. Also parses text. Whole numbers keep all their digits."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        result = float(value) if not isinstance(value, str) or len(value) <= 40 else None
    except (ValueError, OverflowError):
        return None
    if result is None or not abs(result) < float("inf"):
        return None
    is_whole = isinstance(value, int) or (isinstance(value, str) and value.strip().lstrip("+-").isdecimal())
    return int(value) if is_whole else result


def as_text(value: Value) -> str:
    """The value as a command-line argument. Raises ExpressionError if a list is longer than the limit."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return join_text(f",{as_text(item)}" if index else as_text(item) for index, item in enumerate(value))
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "" if value is None else str(value)


def join_text(parts: Iterable[str]) -> str:
    """Raises ExpressionError as soon as it is longer than one argument may be."""
    result: list[str] = []
    length = 0
    for part in parts:
        length += len(part)
        if length > MAX_WORD_BYTES:
            raise ExpressionError(f"a value is longer than {MAX_WORD_BYTES:,} bytes, the limit of one argument")
        result.append(part)
    return "".join(result)


def _tokens(text: str) -> list[str]:
    result: list[str] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise ExpressionError(f"unexpected characters {text[at : at + 20].strip()!a}")
        token = match.group().strip()
        result.append(_SYNONYMS.get(token, token))
        at = match.end()
    return result


class _Reader:
    """Recursive-descent parser: reads the tokens once, from left to right."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens, self._at = tokens, 0

    @property
    def next(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def disjunction(self, depth: int) -> Expression:
        return self._joined("or", self._conjunction, depth)

    def _conjunction(self, depth: int) -> Expression:
        return self._joined("and", self._negation, depth)

    def _joined(self, sign: str, part: Callable[[int], Expression], depth: int) -> Expression:
        if depth > _MAX_DEPTH:
            raise ExpressionError("the expression is nested too deeply")
        result = part(depth)
        while self._accept(sign):
            result = Operation(sign, result, part(depth))
        return result

    def _negation(self, depth: int) -> Expression:
        negations = 0
        while self._accept("not"):
            negations += 1
        result = self._comparison(depth)
        return Operation("not", result, result) if negations % 2 else result

    def _comparison(self, depth: int) -> Expression:
        result = self._value(depth)
        sign = self.next
        if sign not in _COMPARISONS or sign is None:
            return result
        self._at += 1
        return Operation(sign, result, self._value(depth))

    def _value(self, depth: int) -> Expression:
        if self._accept("("):
            result = self.disjunction(depth + 1)
            self._expect(")")
            return result
        token = self._take()
        if token[0] in "'\"":
            return Constant(token[1:-1])
        if token[0].isdigit() or token[0] == "-":
            return Constant(_number(token))
        if not (token[0].isalpha() or token[0] == "_") or token in ("and", "or", "not"):
            raise ExpressionError(f"unexpected {token!a}")
        if token in _CONSTANTS:
            return Constant(_CONSTANTS[token])
        return Call(token, self._arguments(depth)) if self._accept("(") else Reference(self._path(token))

    def _path(self, first: str) -> NamePath:
        path = [first]
        while self._accept("."):
            path.append(self._take())
        return tuple(path)

    def _arguments(self, depth: int) -> tuple[Expression, ...]:
        result: list[Expression] = []
        while not self._accept(")"):
            if result:
                self._expect(",")
            result.append(self.disjunction(depth + 1))
        return tuple(result)

    def _take(self) -> str:
        if self.next is None:
            raise ExpressionError("the expression is incomplete")
        self._at += 1
        return self._tokens[self._at - 1]

    def _accept(self, token: str) -> bool:
        if self.next != token:
            return False
        self._at += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise ExpressionError(
                f"{token!a} is missing" if self.next is None else f"expected {token!a}, not {self.next!a}"
            )


def _number(token: str) -> float | int:
    result = float(token) if set(token) & set(".eE") else int(token)
    if as_number(result) is None:
        raise ExpressionError(f"the number {token!a} is too large")
    return result


def _parts(expression: Expression) -> tuple[Expression, ...]:
    if isinstance(expression, Call):
        return expression.arguments
    if not isinstance(expression, Operation):
        return ()
    return (expression.left,) if expression.operator == "not" else (expression.left, expression.right)


def _evaluate_call(call: Call, scope: EvaluationScope) -> Value:
    if call.function not in scope.functions:
        raise ExpressionError(
            f"unknown function {call.function[:40]}(); known: {_list_functions(scope.functions)}"
        )
    try:
        return scope.functions[call.function](*(evaluate(item, scope) for item in call.arguments))
    except TypeError:
        raise ExpressionError(f"{call.function}() has wrong arguments") from None


def _list_functions(functions: Mapping[str, object]) -> str:
    return ", ".join(f"{name}()" for name in sorted(functions)) or "none here"


def _compare(sign: str, first: Value, second: Value) -> bool:
    if isinstance(first, bool) or isinstance(second, bool):
        first, second = is_truthy(first), is_truthy(second)
    first_number, second_number = as_number(first), as_number(second)
    if sign in ("==", "!="):
        same = (
            first_number == second_number
            if first_number is not None and second_number is not None
            else first == second
        )
        return same == (sign == "==")
    if first_number is None or second_number is None:
        raise ExpressionError(f"{sign} needs numbers, not {as_text(first)[:40]!a} and {as_text(second)[:40]!a}")
    return {
        "<": first_number < second_number,
        "<=": first_number <= second_number,
        ">": first_number > second_number,
        ">=": first_number >= second_number,
    }[sign]
