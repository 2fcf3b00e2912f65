"""From a workflow file and parameters to its jobs: matrices fanned out, what is known already filled in."""

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

LATE_FIELDS = ("command", "env")  # the fields whose words may name what other jobs hand on

MAX_EXPANDED_BYTES = 64 * 2**20  # of all jobs, written out
MAX_LOOKUPS = 1_000_000  # of values other jobs hand on: names in expressions times the jobs that are needed


class ExpansionBudget:
    """What is left for one workflow."""

    def __init__(self, most_bytes: int = MAX_EXPANDED_BYTES, most_lookups: int = MAX_LOOKUPS) -> None:
        self._most_bytes, self._most_lookups = most_bytes, most_lookups
        self._bytes, self._pairs, self._lookups = most_bytes, MAX_DEPENDENCIES_PER_REQUEST, most_lookups

    def take_bytes(self, count: int) -> None:
        """Raises TooLarge."""
        self._bytes -= count
        if self._bytes < 0:
            raise TooLarge(
                f"Written out, these jobs take more than {self._most_bytes // 2**20} MiB.",
                "Put the script, or the values of env, into a file on the node and name the file.",
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
            why = f"looks more than {self._most_lookups:,} times at what other jobs hand on"
            raise invalid_field(
                f"jobs.{job}", why, "Let a small job in between gather these values, and hand on a few."
            )


@dataclass(frozen=True, slots=True)
class ExpandedJob:
    """One job to be."""

    key: str  # its name in the workflow: train, or train.3
    step: WorkflowFileStep
    values: ValueMap  # of its matrix
    job_fields: Mapping[str, object]  # the fields of a job
    needs: tuple[str, ...] = ()  # by key
    is_late: bool = False  # words of its command or its variables are filled in when those it needs are over


@dataclass(frozen=True, slots=True)
class ExpandedWorkflow:
    document: WorkflowDocument
    params: ValueMap
    jobs: tuple[ExpandedJob, ...]


def expand_workflow(
    document: WorkflowDocument, given: Mapping[str, object], room: ExpansionBudget | None = None
) -> ExpandedWorkflow:
    """Raises Invalid, or TooLarge."""
    params = resolve_parameters(document.parameters, given)
    room = room or ExpansionBudget()
    _check_size(document, room)
    try:
        for step in document.steps.values():
            _check_expressions(_Sight(document, step, frozenset(step.parents)))
        makers = (_Maker(document, step, params, room) for step in document.steps.values())
        nodes = [maker.node(place) for maker in makers for place in range(maker.step.job_count)]
    except RecursionError:
        raise invalid_field("jobs", "a job is nested too deeply") from None
    return ExpandedWorkflow(document, params, tuple(nodes))


def job_key(step: WorkflowFileStep, place: int) -> str:
    return step.name if step.matrix is None else f"{step.name}.{place + 1}"


def _check_size(document: WorkflowDocument, room: ExpansionBudget) -> None:
    """Before anything is made of it: what is filled in comes on top."""
    steps = document.steps
    pairs = sum(step.job_count * sum(steps[name].job_count for name in step.needs) for step in steps.values())
    if pairs > MAX_DEPENDENCIES_PER_REQUEST:
        raise too_many_dependencies_error(f"{pairs:,}")
    try:
        size = sum(len(json.dumps(step.job_fields, default=str)) * step.job_count for step in steps.values())
    except (ValueError, RecursionError):
        raise invalid_field("jobs", "a job is nested too deeply") from None
    room.take_bytes(size)


@dataclass(frozen=True, slots=True)
class _Sight:
    """What expressions of a job may name."""

    document: WorkflowDocument
    step: WorkflowFileStep
    parents: frozenset[str]


def _check_expressions(sight: _Sight) -> None:
    """Before anything runs: everything an expression names must be there."""
    at = f"jobs.{sight.step.name}.if"
    try:
        condition = parse_condition(sight.step.condition)
    except ExpressionError as error:
        raise invalid_field(at, str(error)) from None
    _check_names(sight, condition, at, may_ask_status=True)
    for field, value in sight.step.job_fields.items():
        transform_templates(value, partial(_check_text, sight, field))


def _check_text(sight: _Sight, field: str, text: str) -> str:
    step = sight.step
    at = f"jobs.{step.name}.{field}"
    if field == "script" or (field == "command" and isinstance(step.job_fields["command"], str)):
        hint = "Write the command as a list of words; or use a variable: $HELIOSTAT_PARAM_NAME, or one of env."
        raise invalid_field(at, "a shell would read what is filled in", hint)
    try:
        template = parse_template(text)
    except ExpressionError as error:
        raise invalid_field(at, str(error)) from None
    for one in template.expressions:
        _check_names(sight, one, at, may_ask_status=False)
    if _is_late(template) and field not in LATE_FIELDS:
        raise invalid_field(
            at, "cannot depend on what other jobs hand on", "Only words of command and values of env can."
        )
    return text


def _check_names(sight: _Sight, one: Expression, at: str, *, may_ask_status: bool) -> None:
    document, step = sight.document, sight.step
    for call in find_calls(one):
        known = FUNCTIONS if may_ask_status else FUNCTIONS - STATUS_FUNCTIONS
        if call.function not in known:
            raise invalid_field(
                at, f"there is no function {call.function[:40]}(); there are {format_list(sorted(known))}"
            )
    matrix = step.matrix[0] if step.matrix else {}
    for path in find_references(one):
        whole, kind, name = ".".join(path)[:80], path[0], path[1] if len(path) > 1 else ""
        if kind == "params" and len(path) == 2 and name in document.parameters:
            continue
        if kind == "matrix" and len(path) == 2 and name in matrix:
            continue
        if kind == "jobs" and name in document.steps and name not in sight.parents:
            raise invalid_field(at, f"{whole}: {step.name} does not need {name}", f"Add it: needs: [{name}].")
        is_value = len(path) == 4 and path[2] == "outputs"
        if kind == "jobs" and name in sight.parents and (is_value or path[2:] == ("state",)):
            continue
        there = f"params: {format_list(document.parameters)}; jobs: {format_list(step.parents)}"
        raise invalid_field(at, f"there is no {whole}; there are {there}")


def _is_late(template: Template) -> bool:
    return any(path[0] == "jobs" for one in template.expressions for path in find_references(one))


class _Maker:
    """Makes the variants of one job, as long as there is room."""

    def __init__(
        self, document: WorkflowDocument, step: WorkflowFileStep, params: ValueMap, room: ExpansionBudget
    ) -> None:
        self.step = step
        self._document, self._params, self._room = document, params, room
        self._needs = _Needs(document, step)
        self._variables = _variables(params)
        self._templates: dict[str, tuple[Template, bool]] = {}
        for value in step.job_fields.values():
            transform_templates(value, self._template)
        self._is_late = any(late for _, late in self._templates.values())

    def node(self, place: int) -> ExpandedJob:
        """Raises Invalid, or TooLarge."""
        step, values = self.step, self.step.matrix[place] if self.step.matrix else {}
        needs = self._needs.of(values)
        self._room.take_pairs(len(needs))
        key = job_key(step, place)
        scope = build_scope(StartCondition(key, None, self._params, values), (), is_strict=True)
        try:
            body = {
                field: transform_templates(value, partial(self._filled, scope, field))
                for field, value in step.job_fields.items()
            }
        except ExpressionError as error:
            raise invalid_field(f"jobs.{step.name}", str(error)) from None
        whole = self._completed(body, values)
        if self._is_late:
            self._room.take_lookups(step.name, _count_lookups(whole) * len(needs))
        return ExpandedJob(key, step, values, whole, needs, self._is_late)

    def _filled(self, scope: EvaluationScope, field: str, text: str) -> Value:
        template, is_late = self._template(text)
        if is_late:
            return text
        found = template.fill(scope)
        if isinstance(found, str) and field in LATE_FIELDS:
            found = self._kept(found)
        self._room.take_bytes(len(found) if isinstance(found, str) else 0)
        return found

    def _kept(self, value: str) -> str:
        """A value stays what it is, also where words are filled in once more later."""
        return escape_template(value) if self._is_late else value

    def _template(self, text: str) -> tuple[Template, bool]:
        """Read once for all variants."""
        if text not in self._templates:
            template = parse_template(text)
            self._templates[text] = template, _is_late(template)
        return self._templates[text]

    def _completed(self, body: dict[str, object], values: ValueMap) -> dict[str, object]:
        """Words are text, however they were filled in; parameters are variables too."""
        if isinstance(command := body.get("command"), list):
            body["command"] = [as_text(word) if isinstance(word, int | float) else word for word in command]
        env = body.get("env") or {}
        if isinstance(env, Mapping):
            own = {name: self._kept(value) for name, value in (self._variables | _variables(values)).items()}
            self._room.take_bytes(sum(len(name) + len(value) for name, value in own.items()))
            given = {name: as_text(one) if isinstance(one, int | float) else one for name, one in env.items()}
            body["env"] = {**own, **given}
        if self._document.project is not None and "project" not in body:
            body["project"] = self._document.project
        return body


def _variables(values: ValueMap) -> dict[str, str]:
    return {environment_variable(name): as_text(value) for name, value in values.items()}


def _count_lookups(body: Mapping[str, object]) -> int:
    """Rather too many than too few: each names `jobs`."""
    return json.dumps([body.get("command"), body.get("env")], default=str).count("jobs")


class _Needs:
    """Whom the variants of a job need, by key."""

    def __init__(self, document: WorkflowDocument, step: WorkflowFileStep) -> None:
        self.step = step
        parents = [document.steps[name] for name in step.needs]
        self._all = tuple(job_key(one, place) for one in parents for place in range(one.job_count))
        self._alike = [_Alike(document.steps[name], step) for name in step.needs_each]

    def of(self, values: ValueMap) -> tuple[str, ...]:
        """Raises Invalid when one of `needs_each` has no variant with these values."""
        return (*self._all, *(key for alike in self._alike for key in alike.to(values)))


class _Alike:
    """The variants of one job by the values another shares with it."""

    def __init__(self, parent: WorkflowFileStep, child: WorkflowFileStep) -> None:
        rows, own = parent.matrix or ({},), (child.matrix or ({},))[0]
        self._names = [name for name in rows[0] if name in own]
        self._child, self._parent = child.name, parent.name
        if not self._names:
            raise invalid_field(f"jobs.{child.name}.needs_each", f"{child.name} and {parent.name} share no values")
        self._keys: dict[tuple[Value, ...], list[str]] = {}
        for place, row in enumerate(rows):
            self._keys.setdefault(self._shared(row), []).append(job_key(parent, place))

    def to(self, values: ValueMap) -> list[str]:
        if found := self._keys.get(self._shared(values)):
            return found
        raise invalid_field(
            f"jobs.{self._child}.needs_each", f"{self._parent} has no variant with {format_values(values)[:200]}"
        )

    def _shared(self, row: ValueMap) -> tuple[Value, ...]:
        return tuple(row[name] for name in self._names)


def too_many_dependencies_error(told: str) -> Invalid:
    hint = "Put a small job in between that needs all of them, and let the others need that one."
    return invalid_field(
        "jobs", f"makes {told} pairs of a job and one it needs; {MAX_DEPENDENCIES_PER_REQUEST:,} are allowed", hint
    )
