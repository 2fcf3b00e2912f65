"""What becomes of a job when those it needs are over: it starts, with their values filled in, or it does not."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from heliostat.workflows.expressions import (
    MAX_WORD_BYTES,
    Call,
    EvaluationScope,
    Expression,
    ExpressionError,
    NamePath,
    Operation,
    Value,
    as_number,
    as_text,
    evaluate,
    find_calls,
    find_references,
    is_truthy,
    parse_expression,
)
from heliostat.workflows.matrix import ValueMap
from heliostat.workflows.templates import has_template, parse_template

STATUS_FUNCTIONS = frozenset({"success", "failure", "always"})
FUNCTIONS = STATUS_FUNCTIONS | {"min", "max", "argmin", "argmax", "join", "count"}
SKIPPED = "skipped"
_MOST_GROWTH = 128 * 1024  # bytes by which all words of a job may grow when values are filled in


@dataclass(frozen=True, slots=True)
class FinishedParent:
    """A job that is over, as those who need it see it."""

    key: str
    step: str  # the job of the file it is a variant of
    state: str  # a job's, or skipped
    outputs: Mapping[str, str] = field(default_factory=dict)
    is_matrix_variant: bool = False
    continue_on_failure: bool = False  # its failure is no failure
    is_after_failure: bool = False  # one of those it needed, or before these, has failed

    @property
    def is_successful(self) -> bool:
        return self.state == "completed" or (self.continue_on_failure and self.state != SKIPPED)

    @property
    def has_failed(self) -> bool:
        return not self.is_successful and self.state != SKIPPED


@dataclass(frozen=True, slots=True)
class StartCondition:
    """What decides over a job's start."""

    key: str
    expression: str | None
    params: ValueMap
    matrix: ValueMap
    template_words: Sequence[str] = ()  # that may hold expressions


@dataclass(frozen=True, slots=True)
class StartDecision:
    filled_words: tuple[str, ...] = ()  # filled in
    outcome: str | None = None  # skipped, refused; None: it starts
    reason: str | None = None
    is_after_failure: bool = False


class _Many(list[Value]):
    """Values of the variants of one job, and which variant each is of."""

    def __init__(self, pairs: Sequence[tuple[str, Value]]) -> None:
        super().__init__(value for _, value in pairs)
        self.keys = [key for key, _ in pairs]


def parse_condition(text: str | None) -> Expression:
    """Where it does not say otherwise, all that were needed must have succeeded. Raises Wrong."""
    if text is None:
        return Call("success")
    found = parse_expression(text)
    if any(call.function in STATUS_FUNCTIONS for call in find_calls(found)):
        return found
    return Operation("and", Call("success"), found)


def decide_start(gate: StartCondition, over: Sequence[FinishedParent]) -> StartDecision:
    """Given all that it needed. The same question gives the same answer."""
    after_failure = any(one.has_failed or one.is_after_failure for one in over)
    try:
        if not is_truthy(evaluate(parse_condition(gate.expression), build_scope(gate, over, is_strict=False))):
            return StartDecision((), SKIPPED, _why_skipped(gate, over), after_failure)
        scope = build_scope(gate, over, is_strict=True)
        words = _all_filled(gate.template_words, scope)
    except ExpressionError as error:
        return StartDecision((), "refused", f"its workflow cannot start it: {error}", after_failure)
    return StartDecision(words, is_after_failure=after_failure)


def find_referenced_outputs(gate: StartCondition) -> frozenset[str]:
    """The names of all values it looks at; none if it cannot be read."""
    try:
        templates = [parse_template(word) for word in gate.template_words if has_template(word)]
        those = [
            parse_condition(gate.expression),
            *(one for template in templates for one in template.expressions),
        ]
    except ExpressionError:
        return frozenset()
    paths = (path for one in those for path in find_references(one))
    return frozenset(path[3] for path in paths if len(path) == 4 and path[2] == "outputs")


def build_scope(gate: StartCondition, over: Sequence[FinishedParent], *, is_strict: bool) -> EvaluationScope:
    """What expressions may name. Strict: what was not handed on is an error, not null."""
    by_step: dict[str, list[FinishedParent]] = {}
    for one in over:
        by_step.setdefault(one.step, []).append(one)

    def look_up(path: NamePath) -> Value:
        if len(path) == 2 and path[0] in ("params", "matrix"):
            values = gate.params if path[0] == "params" else gate.matrix
            if path[1] in values:
                return values[path[1]]
        if len(path) > 2 and path[0] == "jobs" and path[1] in by_step:
            return _of_job(path, by_step[path[1]], is_strict)
        raise ExpressionError(f"there is no {'.'.join(path)[:80]} here")

    return EvaluationScope(look_up, _functions(over))


def _functions(over: Sequence[FinishedParent]) -> dict[str, Callable[..., Value]]:
    return {
        "success": lambda: all(one.is_successful for one in over),
        "failure": lambda: any(one.has_failed or one.is_after_failure for one in over),
        "always": lambda: True,
        "min": lambda values: _best(values, min)[1],
        "max": lambda values: _best(values, max)[1],
        "argmin": lambda values: _best(values, min)[0],
        "argmax": lambda values: _best(values, max)[0],
        "join": as_text,
        "count": lambda values: len(values) if isinstance(values, list) else 1,
    }


def _best(values: Value, choose: Callable[[list[float]], float]) -> tuple[str, Value]:
    if not isinstance(values, _Many):
        raise ExpressionError("min, max, argmin and argmax are for values of a job with a matrix")
    found = [
        (number, key, value)
        for key, value in zip(values.keys, values, strict=True)
        if (number := as_number(value)) is not None
    ]
    if not found:
        raise ExpressionError("no variant has handed on a number")
    best = choose([one[0] for one in found])
    _, key, value = next(one for one in found if one[0] == best)
    return key, value


def _of_job(path: NamePath, variants: Sequence[FinishedParent], is_strict: bool) -> Value:
    is_many = variants[0].is_matrix_variant and len(variants) > 1
    if path[2:] == ("state",):
        return _Many([(one.key, one.state) for one in variants]) if is_many else variants[0].state
    if len(path) != 4 or path[2] != "outputs":
        raise ExpressionError(f"there is no {'.'.join(path)[:80]}; write jobs.{path[1]}.outputs.NAME")
    found = [(one.key, one.outputs[path[3]]) for one in variants if path[3] in one.outputs]
    if is_many:
        return _Many(found)
    if not found and is_strict:
        raise ExpressionError(f"{path[1]} has handed on no value {path[3][:60]}")
    return found[0][1] if found else None


def _all_filled(words: Sequence[str], scope: EvaluationScope) -> tuple[str, ...]:
    found: list[str] = []
    left = _MOST_GROWTH
    for word in words:
        found.append(_filled(word, scope) if has_template(word) else word)
        left -= max(0, len(found[-1]) - len(word))
        if left < 0:
            raise ExpressionError(f"with these values its words grow by more than {_MOST_GROWTH // 1024} KiB")
    return tuple(found)


def _filled(word: str, scope: EvaluationScope) -> str:
    filled = as_text(parse_template(word).fill(scope))
    if "\0" in filled or len(filled.encode("utf-8", "replace")) > MAX_WORD_BYTES:
        raise ExpressionError("a value is too long, or holds a NUL character")
    return filled


def _why_skipped(gate: StartCondition, over: Sequence[FinishedParent]) -> str:
    if gate.expression is not None:
        return f"skipped: {gate.expression[:200]} is not true"
    bad = next((one for one in over if not one.is_successful), None)
    return "skipped" if bad is None else f"skipped: {bad.key} {_ENDED.get(bad.state, bad.state)}"


_ENDED = {
    "failed": "failed",
    "cancelled": "was cancelled",
    "timed_out": "ran out of time",
    "lost": "was lost",
    SKIPPED: "was skipped",
}
