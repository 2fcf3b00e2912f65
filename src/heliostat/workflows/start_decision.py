"""Start decision for a workflow job whose parents have ended: start with their outputs filled in, or skip."""

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
_MAX_GROWTH = 128 * 1024  # bytes by which all words of a job may grow when values are filled in


@dataclass(frozen=True, slots=True)
class FinishedParent:
    """A parent job that has ended, with its outputs."""

    key: str
    step: str  # the job of the file it is a variant of
    state: str  # a job's, or skipped
    outputs: Mapping[str, str] = field(default_factory=dict)
    is_matrix_variant: bool = False
    continue_on_failure: bool = False  # its failure counts as success
    is_after_failure: bool = False  # one of its own direct or indirect parents has failed

    @property
    def is_successful(self) -> bool:
        return self.state == "completed" or (self.continue_on_failure and self.state != SKIPPED)

    @property
    def has_failed(self) -> bool:
        return not self.is_successful and self.state != SKIPPED


@dataclass(frozen=True, slots=True)
class StartCondition:
    """The condition and the templates of a job."""

    key: str
    expression: str | None
    params: ValueMap
    matrix: ValueMap
    template_words: Sequence[str] = ()  # that may hold expressions


@dataclass(frozen=True, slots=True)
class StartDecision:
    filled_words: tuple[str, ...] = ()
    outcome: str | None = None  # skipped, refused; None: the job starts
    reason: str | None = None
    is_after_failure: bool = False


class _Many(list[Value]):
    """Values of all variants of one job, with the keys of the variants."""

    def __init__(self, pairs: Sequence[tuple[str, Value]]) -> None:
        super().__init__(value for _, value in pairs)
        self.keys = [key for key, _ in pairs]


def parse_condition(text: str | None) -> Expression:
    """Without a status function, all parents must have succeeded. Raises ExpressionError."""
    if text is None:
        return Call("success")
    parsed = parse_expression(text)
    if any(call.function in STATUS_FUNCTIONS for call in find_calls(parsed)):
        return parsed
    return Operation("and", Call("success"), parsed)


def decide_start(condition: StartCondition, parents: Sequence[FinishedParent]) -> StartDecision:
    """Given all parents. Deterministic."""
    after_failure = any(parent.has_failed or parent.is_after_failure for parent in parents)
    try:
        if not is_truthy(
            evaluate(parse_condition(condition.expression), build_scope(condition, parents, is_strict=False))
        ):
            return StartDecision((), SKIPPED, _skip_reason(condition, parents), after_failure)
        scope = build_scope(condition, parents, is_strict=True)
        words = _all_filled(condition.template_words, scope)
    except ExpressionError as error:
        return StartDecision((), "refused", f"cannot start: {error}", after_failure)
    return StartDecision(words, is_after_failure=after_failure)


def find_referenced_outputs(condition: StartCondition) -> frozenset[str]:
    """Names of all outputs that it refers to; empty if it cannot be parsed."""
    try:
        templates = [parse_template(word) for word in condition.template_words if has_template(word)]
        expressions = [
            parse_condition(condition.expression),
            *(expression for template in templates for expression in template.expressions),
        ]
    except ExpressionError:
        return frozenset()
    paths = (path for expression in expressions for path in find_references(expression))
    return frozenset(path[3] for path in paths if len(path) == 4 and path[2] == "outputs")


def build_scope(
    condition: StartCondition, parents: Sequence[FinishedParent], *, is_strict: bool
) -> EvaluationScope:
    """Names and functions for expressions. Strict: a missing output is an error instead of null."""
    by_step: dict[str, list[FinishedParent]] = {}
    for parent in parents:
        by_step.setdefault(parent.step, []).append(parent)

    def look_up(path: NamePath) -> Value:
        if len(path) == 2 and path[0] in ("params", "matrix"):
            values = condition.params if path[0] == "params" else condition.matrix
            if path[1] in values:
                return values[path[1]]
        if len(path) > 2 and path[0] == "jobs" and path[1] in by_step:
            return _job_value(path, by_step[path[1]], is_strict)
        raise ExpressionError(f"{'.'.join(path)[:80]} does not exist here")

    return EvaluationScope(look_up, _functions(parents))


def _functions(parents: Sequence[FinishedParent]) -> dict[str, Callable[..., Value]]:
    return {
        "success": lambda: all(parent.is_successful for parent in parents),
        "failure": lambda: any(parent.has_failed or parent.is_after_failure for parent in parents),
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
        raise ExpressionError("min, max, argmin and argmax need outputs of a job with a matrix")
    numbers = [
        (number, key, value)
        for key, value in zip(values.keys, values, strict=True)
        if (number := as_number(value)) is not None
    ]
    if not numbers:
        raise ExpressionError("no variant has an output that is a number")
    best = choose([item[0] for item in numbers])
    _, key, value = next(item for item in numbers if item[0] == best)
    return key, value


def _job_value(path: NamePath, variants: Sequence[FinishedParent], is_strict: bool) -> Value:
    is_many = variants[0].is_matrix_variant and len(variants) > 1
    if path[2:] == ("state",):
        return _Many([(parent.key, parent.state) for parent in variants]) if is_many else variants[0].state
    if len(path) != 4 or path[2] != "outputs":
        raise ExpressionError(f"{'.'.join(path)[:80]} does not exist; write jobs.{path[1]}.outputs.NAME")
    outputs = [(parent.key, parent.outputs[path[3]]) for parent in variants if path[3] in parent.outputs]
    if is_many:
        return _Many(outputs)
    if not outputs and is_strict:
        raise ExpressionError(f"job {path[1]} has no output {path[3][:60]}")
    return outputs[0][1] if outputs else None


def _all_filled(words: Sequence[str], scope: EvaluationScope) -> tuple[str, ...]:
    result: list[str] = []
    remaining = _MAX_GROWTH
    for word in words:
        result.append(_filled(word, scope) if has_template(word) else word)
        remaining -= max(0, len(result[-1]) - len(word))
        if remaining < 0:
            raise ExpressionError(f"the filled-in values are larger than {_MAX_GROWTH // 1024} KiB together")
    return tuple(result)


def _filled(word: str, scope: EvaluationScope) -> str:
    filled = as_text(parse_template(word).fill(scope))
    if "\0" in filled or len(filled.encode("utf-8", "replace")) > MAX_WORD_BYTES:
        raise ExpressionError("a value is too long, or contains a NUL character")
    return filled


def _skip_reason(condition: StartCondition, parents: Sequence[FinishedParent]) -> str:
    if condition.expression is not None:
        return f"skipped: the condition {condition.expression[:200]} is false"
    failed_parent = next((parent for parent in parents if not parent.is_successful), None)
    return (
        "skipped"
        if failed_parent is None
        else f"skipped: {failed_parent.key} {_ENDED.get(failed_parent.state, failed_parent.state)}"
    )


_ENDED = {
    "failed": "failed",
    "cancelled": "was cancelled",
    "timed_out": "timed out",
    "lost": "was lost",
    SKIPPED: "was skipped",
}
