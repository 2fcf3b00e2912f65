"""From a workflow file and parameters to its jobs: matrices fanned out, what is known already filled in."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from heliostat.errors import TooLarge
from heliostat.models.dependencies import MOST_PAIRS
from heliostat.workflows.deciding import FUNCTIONS, STATUS_FUNCTIONS, Gate, read_condition, scope_of
from heliostat.workflows.documents import MOST_JOBS, Document, Step
from heliostat.workflows.expressions import Expression, Value, Wrong, as_text, calls_in, names_in
from heliostat.workflows.matrix import Values, label
from heliostat.workflows.parameters import settle, variable_of
from heliostat.workflows.refusing import listed, wrong
from heliostat.workflows.templates import parse_template, walk

MOST_BYTES = 64 * 2**20  # of all jobs, written out


@dataclass(frozen=True, slots=True)
class Node:
    """One job to be."""

    key: str  # its name in the workflow: train, or train.3
    step: Step
    values: Values  # of its matrix
    body: Mapping[str, object]  # the fields of a job
    needs: tuple[str, ...] = ()  # by key
    is_late: bool = False  # words of its command or its variables are filled in when those it needs are over


@dataclass(frozen=True, slots=True)
class Expanded:
    document: Document
    params: Values
    nodes: tuple[Node, ...]


def expand(document: Document, given: Mapping[str, object]) -> Expanded:
    """Raises Invalid, or TooLarge."""
    params = settle(document.parameters, given)
    _check_size(document)
    for step in document.steps.values():
        _check_expressions(document, step)
    nodes: list[Node] = []
    for step in document.steps.values():
        needs = _Needs(document, step)
        nodes += [_node(document, needs, place, params) for place in range(count_of(step))]
    return Expanded(document, params, tuple(nodes))


def count_of(step: Step) -> int:
    return 1 if step.matrix is None else len(step.matrix)


def key_of(step: Step, place: int) -> str:
    return step.name if step.matrix is None else f"{step.name}.{place + 1}"


def _check_size(document: Document) -> None:
    """Before anything is made of it."""
    steps = document.steps
    count = sum(map(count_of, steps.values()))
    if count > MOST_JOBS:
        raise wrong(
            "jobs", f"makes {count:,} jobs; {MOST_JOBS:,} are allowed", "Take some values of matrices away."
        )
    pairs = sum(count_of(step) * sum(count_of(steps[name]) for name in step.needs) for step in steps.values())
    if pairs > MOST_PAIRS:
        hint = "Put a small job in between that needs all of them, and let the others need that one."
        raise wrong("jobs", f"makes {pairs:,} pairs of a job and one it needs; {MOST_PAIRS:,} are allowed", hint)
    try:
        size = sum(len(json.dumps(step.body, default=str)) * count_of(step) for step in steps.values())
    except (ValueError, RecursionError):
        raise wrong("jobs", "a job is nested too deeply") from None
    if size > MOST_BYTES:
        raise TooLarge(
            f"Written out, these jobs take more than {MOST_BYTES // 2**20} MiB.",
            "Put the script, or the values of env, into a file on the node and name the file.",
        )


def _check_expressions(document: Document, step: Step) -> None:
    """Before anything runs: everything an expression names must be there."""
    at = f"jobs.{step.name}.if"
    try:
        condition = read_condition(step.condition)
    except Wrong as error:
        raise wrong(at, str(error)) from None
    _check_names(document, step, condition, at, may_ask_status=True)
    for field, value in step.body.items():
        walk(value, partial(_check_text, document, step, field))


def _check_text(document: Document, step: Step, field: str, text: str) -> str:
    at = f"jobs.{step.name}.{field}"
    if field == "script" or (field == "command" and isinstance(step.body["command"], str)):
        hint = "Write the command as a list of words; or use a variable: $HELIOSTAT_PARAM_NAME, or one of env."
        raise wrong(at, "a shell would read what is filled in", hint)
    try:
        template = parse_template(text)
    except Wrong as error:
        raise wrong(at, str(error)) from None
    for one in template.expressions:
        _check_names(document, step, one, at, may_ask_status=False)
    if _is_late(text) and field not in ("command", "env"):
        raise wrong(at, "cannot depend on what other jobs hand on", "Only words of command and values of env can.")
    return text


def _check_names(document: Document, step: Step, one: Expression, at: str, *, may_ask_status: bool) -> None:
    for call in calls_in(one):
        known = FUNCTIONS if may_ask_status else FUNCTIONS - STATUS_FUNCTIONS
        if call.function not in known:
            raise wrong(at, f"there is no function {call.function[:40]}(); there are {listed(sorted(known))}")
    matrix = step.matrix[0] if step.matrix else {}
    for path in names_in(one):
        whole, kind, name = ".".join(path)[:80], path[0], path[1] if len(path) > 1 else ""
        if kind == "params" and len(path) == 2 and name in document.parameters:
            continue
        if kind == "matrix" and len(path) == 2 and name in matrix:
            continue
        if kind == "jobs" and name in document.steps and name not in step.parents:
            raise wrong(at, f"{whole}: {step.name} does not need {name}", f"Add it: needs: [{name}].")
        is_value = len(path) == 4 and path[2] == "outputs"
        if kind == "jobs" and name in step.parents and (is_value or path[2:] == ("state",)):
            continue
        there = f"params: {listed(document.parameters)}; jobs: {listed(step.parents)}"
        raise wrong(at, f"there is no {whole}; there are {there}")


def _is_late(text: str) -> bool:
    return any(path[0] == "jobs" for one in parse_template(text).expressions for path in names_in(one))


def _node(document: Document, needs: "_Needs", place: int, params: Values) -> Node:
    step = needs.step
    values = step.matrix[place] if step.matrix else {}
    key = key_of(step, place)
    scope = scope_of(Gate(key, None, params, values), (), is_strict=True)
    late: list[str] = []

    def filled(text: str) -> Value:
        if _is_late(text):
            late.append(text)
            return text
        return parse_template(text).filled(scope)

    try:
        body = {field: walk(value, filled) for field, value in step.body.items()}
    except Wrong as error:
        raise wrong(f"jobs.{step.name}", str(error)) from None
    return Node(
        key=key,
        step=step,
        values=values,
        body=_completed(document, body, params, values),
        needs=needs.of(values),
        is_late=bool(late),
    )


def _completed(document: Document, body: dict[str, object], params: Values, values: Values) -> dict[str, object]:
    """Words are text, however they were filled in; parameters are variables too."""
    if isinstance(command := body.get("command"), list):
        body["command"] = [as_text(word) if isinstance(word, int | float) else word for word in command]
    env = body.get("env") or {}
    if isinstance(env, Mapping):
        own = {variable_of(name): as_text(value) for name, value in {**params, **values}.items()}
        given = {name: as_text(value) if isinstance(value, int | float) else value for name, value in env.items()}
        body["env"] = {**own, **given}
    if document.project is not None and "project" not in body:
        body["project"] = document.project
    return body


class _Needs:
    """Whom the variants of a job need, by key."""

    def __init__(self, document: Document, step: Step) -> None:
        self.step = step
        parents = [document.steps[name] for name in step.needs]
        self._all = tuple(key_of(one, place) for one in parents for place in range(count_of(one)))
        self._alike = [_Alike(document.steps[name], step) for name in step.needs_each]

    def of(self, values: Values) -> tuple[str, ...]:
        """Raises Invalid when one of `needs_each` has no variant with these values."""
        return (*self._all, *(key for alike in self._alike for key in alike.to(values)))


class _Alike:
    """The variants of one job by the values another shares with it."""

    def __init__(self, parent: Step, child: Step) -> None:
        rows, own = parent.matrix or ({},), (child.matrix or ({},))[0]
        self._names = [name for name in rows[0] if name in own]
        self._child, self._parent = child.name, parent.name
        if not self._names:
            raise wrong(f"jobs.{child.name}.needs_each", f"{child.name} and {parent.name} share no values")
        self._keys: dict[tuple[Value, ...], list[str]] = {}
        for place, row in enumerate(rows):
            self._keys.setdefault(self._shared(row), []).append(key_of(parent, place))

    def to(self, values: Values) -> list[str]:
        if found := self._keys.get(self._shared(values)):
            return found
        raise wrong(f"jobs.{self._child}.needs_each", f"{self._parent} has no variant with {label(values)[:200]}")

    def _shared(self, row: Values) -> tuple[Value, ...]:
        return tuple(row[name] for name in self._names)
