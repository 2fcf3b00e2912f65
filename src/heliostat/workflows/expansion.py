"""Expansion of a workflow file into jobs: matrices, parameters and templates."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from heliostat.errors import Invalid, TooLarge
from heliostat.models.dependencies import MAX_DEPENDENCIES_PER_REQUEST
from heliostat.workflows.expressions import (
    EvaluationScope,
    Expression,
    ExpressionError,
    Value,
    as_text,
    find_calls,
    find_references,
)
from heliostat.workflows.matrix import ValueMap, format_values
from heliostat.workflows.parameters import environment_variable, resolve_parameters
from heliostat.workflows.start_decision import (
    FUNCTIONS,
    STATUS_FUNCTIONS,
    StartCondition,
    build_scope,
    parse_condition,
)
from heliostat.workflows.templates import Template, escape_template, parse_template, transform_templates
from heliostat.workflows.validation_errors import format_list, invalid_field
from heliostat.workflows.workflow_file import WorkflowDocument, WorkflowFileStep

LATE_FIELDS = ("command", "env")  # the fields that may refer to outputs of other jobs

MAX_EXPANDED_BYTES = 64 * 2**20  # of all expanded jobs together
MAX_LOOKUPS = 1_000_000  # of outputs: references in expressions times the number of parents


class ExpansionBudget:
    """Remaining limits of one workflow."""

    def __init__(self, most_bytes: int = MAX_EXPANDED_BYTES, most_lookups: int = MAX_LOOKUPS) -> None:
        self._most_bytes, self._most_lookups = most_bytes, most_lookups
        self._bytes, self._pairs, self._lookups = most_bytes, MAX_DEPENDENCIES_PER_REQUEST, most_lookups

    def take_bytes(self, count: int) -> None:
        """Raises TooLarge."""
        self._bytes -= count
        if self._bytes < 0:
            raise TooLarge(
                f"The expanded jobs are larger than {self._most_bytes // 2**20} MiB.",
                "Put the script or the values of env into a file and refer to the file.",
            )

    def take_pairs(self, count: int) -> None:
        """Raises Invalid."""
        self._pairs -= count
        if self._pairs < 0:
            raise too_many_dependencies_error(f"more than {MAX_DEPENDENCIES_PER_REQUEST:,}")

    def take_lookups(self, job: str, count: int) -> None:
        """Raises Invalid."""
        self._lookups -= count
        if self._lookups < 0:
            reason = f"refers to outputs of other jobs more than {self._most_lookups:,} times"
            raise invalid_field(
                f"jobs.{job}", reason, "Add a job in between that collects these outputs into a few."
            )


@dataclass(frozen=True, slots=True)
class ExpandedJob:
    """One job of the expanded workflow."""

    key: str  # its name in the workflow: train, or train.3
    step: WorkflowFileStep
    values: ValueMap  # of its matrix
    job_fields: Mapping[str, object]  # the fields of a job
    needs: tuple[str, ...] = ()  # keys of its parents
    is_late: bool = False  # its command or env contains outputs, filled in when its parents have ended


@dataclass(frozen=True, slots=True)
class ExpandedWorkflow:
    document: WorkflowDocument
    params: ValueMap
    jobs: tuple[ExpandedJob, ...]


def expand_workflow(
    document: WorkflowDocument, given: Mapping[str, object], budget: ExpansionBudget | None = None
) -> ExpandedWorkflow:
    """Raises Invalid, or TooLarge."""
    params = resolve_parameters(document.parameters, given)
    budget = budget or ExpansionBudget()
    _check_size(document, budget)
    try:
        for step in document.steps.values():
            _check_expressions(_ExpressionContext(document, step, frozenset(step.parents)))
        expanders = (_StepExpander(document, step, params, budget) for step in document.steps.values())
        jobs = [expander.expand(index) for expander in expanders for index in range(expander.step.job_count)]
    except RecursionError:
        raise invalid_field("jobs", "a job is nested too deeply") from None
    return ExpandedWorkflow(document, params, tuple(jobs))


def job_key(step: WorkflowFileStep, index: int) -> str:
    return step.name if step.matrix is None else f"{step.name}.{index + 1}"


def _check_size(document: WorkflowDocument, budget: ExpansionBudget) -> None:
    """Check the size before expansion; values that are filled in count later."""
    steps = document.steps
    pairs = sum(step.job_count * sum(steps[name].job_count for name in step.needs) for step in steps.values())
    if pairs > MAX_DEPENDENCIES_PER_REQUEST:
        raise too_many_dependencies_error(f"{pairs:,}")
    try:
        size = sum(len(json.dumps(step.job_fields, default=str)) * step.job_count for step in steps.values())
    except (ValueError, RecursionError):
        raise invalid_field("jobs", "a job is nested too deeply") from None
    budget.take_bytes(size)


@dataclass(frozen=True, slots=True)
class _ExpressionContext:
    """What expressions of a job may refer to."""

    document: WorkflowDocument
    step: WorkflowFileStep
    parents: frozenset[str]


def _check_expressions(context: _ExpressionContext) -> None:
    """Check before any job runs that everything an expression refers to exists."""
    at = f"jobs.{context.step.name}.if"
    try:
        condition = parse_condition(context.step.condition)
    except ExpressionError as error:
        raise invalid_field(at, str(error)) from None
    _check_names(context, condition, at, may_ask_status=True)
    for field, value in context.step.job_fields.items():
        transform_templates(value, partial(_check_text, context, field))


def _check_text(context: _ExpressionContext, field: str, text: str) -> str:
    step = context.step
    at = f"jobs.{step.name}.{field}"
    if field == "script" or (field == "command" and isinstance(step.job_fields["command"], str)):
        hint = "Write the command as a list, or use an environment variable: $HELIOSTAT_PARAM_NAME, or one of env."
        raise invalid_field(at, "expressions are not allowed in text that a shell reads", hint)
    try:
        template = parse_template(text)
    except ExpressionError as error:
        raise invalid_field(at, str(error)) from None
    for expression in template.expressions:
        _check_names(context, expression, at, may_ask_status=False)
    if _is_late(template) and field not in LATE_FIELDS:
        raise invalid_field(
            at, "cannot refer to outputs of other jobs", "Only a command given as a list, and env, can."
        )
    return text


def _check_names(context: _ExpressionContext, expression: Expression, at: str, *, may_ask_status: bool) -> None:
    document, step = context.document, context.step
    for call in find_calls(expression):
        known = FUNCTIONS if may_ask_status else FUNCTIONS - STATUS_FUNCTIONS
        if call.function not in known:
            raise invalid_field(
                at, f"unknown function {call.function[:40]}(); known functions: {format_list(sorted(known))}"
            )
    matrix = step.matrix[0] if step.matrix else {}
    for path in find_references(expression):
        full_name, kind, name = ".".join(path)[:80], path[0], path[1] if len(path) > 1 else ""
        if kind == "params" and len(path) == 2 and name in document.parameters:
            continue
        if kind == "matrix" and len(path) == 2 and name in matrix:
            continue
        if kind == "jobs" and name in document.steps and name not in context.parents:
            raise invalid_field(
                at, f"{full_name}: {name} is not in needs of {step.name}", f"Add it: needs: [{name}]."
            )
        is_value = len(path) == 4 and path[2] == "outputs"
        if kind == "jobs" and name in context.parents and (is_value or path[2:] == ("state",)):
            continue
        known_names = f"params: {format_list(document.parameters)}; jobs: {format_list(step.parents)}"
        raise invalid_field(at, f"{full_name} does not exist; known {known_names}")


def _is_late(template: Template) -> bool:
    return any(path[0] == "jobs" for expression in template.expressions for path in find_references(expression))


class _StepExpander:
    """Expands one job of the file into its variants, within the budget."""

    def __init__(
        self, document: WorkflowDocument, step: WorkflowFileStep, params: ValueMap, budget: ExpansionBudget
    ) -> None:
        self.step = step
        self._document, self._params, self._budget = document, params, budget
        self._needs = _Needs(document, step)
        self._variables = _variables(params)
        self._templates: dict[str, tuple[Template, bool]] = {}
        for value in step.job_fields.values():
            transform_templates(value, self._template)
        self._is_late = any(late for _, late in self._templates.values())

    def expand(self, index: int) -> ExpandedJob:
        """Raises Invalid, or TooLarge."""
        step, values = self.step, self.step.matrix[index] if self.step.matrix else {}
        needs = self._needs.of(values)
        self._budget.take_pairs(len(needs))
        key = job_key(step, index)
        scope = build_scope(StartCondition(key, None, self._params, values), (), is_strict=True)
        try:
            fields = {
                field: transform_templates(value, partial(self._filled, scope, field))
                for field, value in step.job_fields.items()
            }
        except ExpressionError as error:
            raise invalid_field(f"jobs.{step.name}", str(error)) from None
        job_fields = self._with_environment(fields, values)
        if self._is_late:
            self._budget.take_lookups(step.name, _count_lookups(job_fields) * len(needs))
        return ExpandedJob(key, step, values, job_fields, needs, self._is_late)

    def _filled(self, scope: EvaluationScope, field: str, text: str) -> Value:
        template, is_late = self._template(text)
        if is_late:
            return text
        value = template.fill(scope)
        if isinstance(value, str) and field in LATE_FIELDS:
            value = self._escaped_if_late(value)
        self._budget.take_bytes(len(value) if isinstance(value, str) else 0)
        return value

    def _escaped_if_late(self, value: str) -> str:
        """Escape a value if the text will be filled in again later, so that the value stays unchanged."""
        return escape_template(value) if self._is_late else value

    def _template(self, text: str) -> tuple[Template, bool]:
        """Parsed once for all variants."""
        if text not in self._templates:
            template = parse_template(text)
            self._templates[text] = template, _is_late(template)
        return self._templates[text]

    def _with_environment(self, fields: dict[str, object], values: ValueMap) -> dict[str, object]:
        """Convert numbers in command and env to text; add parameters as environment variables."""
        if isinstance(command := fields.get("command"), list):
            fields["command"] = [as_text(word) if isinstance(word, int | float) else word for word in command]
        env = fields.get("env") or {}
        if isinstance(env, Mapping):
            variables = {
                name: self._escaped_if_late(value)
                for name, value in (self._variables | _variables(values)).items()
            }
            self._budget.take_bytes(sum(len(name) + len(value) for name, value in variables.items()))
            given = {
                name: as_text(value) if isinstance(value, int | float) else value for name, value in env.items()
            }
            fields["env"] = {**variables, **given}
        if self._document.project is not None and "project" not in fields:
            fields["project"] = self._document.project
        return fields


def _variables(values: ValueMap) -> dict[str, str]:
    return {environment_variable(name): as_text(value) for name, value in values.items()}


def _count_lookups(fields: Mapping[str, object]) -> int:
    """Upper bound: every reference to an output contains `jobs`."""
    return json.dumps([fields.get("command"), fields.get("env")], default=str).count("jobs")


class _Needs:
    """Keys of the parents of each variant of a job."""

    def __init__(self, document: WorkflowDocument, step: WorkflowFileStep) -> None:
        self.step = step
        parents = [document.steps[name] for name in step.needs]
        self._all = tuple(job_key(parent, index) for parent in parents for index in range(parent.job_count))
        self._matching = [_MatchingVariants(document.steps[name], step) for name in step.needs_each]

    def of(self, values: ValueMap) -> tuple[str, ...]:
        """Raises Invalid if a job of `needs_each` has no variant with these values."""
        return (*self._all, *(key for matching in self._matching for key in matching.keys_for(values)))


class _MatchingVariants:
    """Variants of a parent job by the matrix values that it shares with the child."""

    def __init__(self, parent: WorkflowFileStep, child: WorkflowFileStep) -> None:
        rows, child_values = parent.matrix or ({},), (child.matrix or ({},))[0]
        self._names = [name for name in rows[0] if name in child_values]
        self._child, self._parent = child.name, parent.name
        if not self._names:
            raise invalid_field(
                f"jobs.{child.name}.needs_each", f"{child.name} and {parent.name} have no matrix values in common"
            )
        self._keys: dict[tuple[Value, ...], list[str]] = {}
        for index, row in enumerate(rows):
            self._keys.setdefault(self._shared(row), []).append(job_key(parent, index))

    def keys_for(self, values: ValueMap) -> list[str]:
        if keys := self._keys.get(self._shared(values)):
            return keys
        raise invalid_field(
            f"jobs.{self._child}.needs_each", f"{self._parent} has no variant with {format_values(values)[:200]}"
        )

    def _shared(self, row: ValueMap) -> tuple[Value, ...]:
        return tuple(row[name] for name in self._names)


def too_many_dependencies_error(count: str) -> Invalid:
    hint = "Add a job in between that needs all of them, and let the other jobs need that one."
    return invalid_field(
        "jobs", f"has {count} dependencies between jobs; the limit is {MAX_DEPENDENCIES_PER_REQUEST:,}", hint
    )
