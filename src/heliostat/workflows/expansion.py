"""From a workflow file and parameters to its jobs: matrices fanned out, what is known already filled in."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from heliostat.errors import Invalid, TooLarge
from heliostat.models.dependencies import MOST_PAIRS
from heliostat.workflows.deciding import FUNCTIONS, STATUS_FUNCTIONS, Gate, read_condition, scope_of
from heliostat.workflows.documents import Document, Step
from heliostat.workflows.expressions import Expression, Scope, Value, Wrong, as_text, calls_in, names_in
from heliostat.workflows.matrix import Values, label
from heliostat.workflows.parameters import settle, variable_of
from heliostat.workflows.refusing import listed, wrong
from heliostat.workflows.templates import Template, as_it_is, parse_template, walk

FILLED_LATER = ("command", "env")  # the fields whose words may name what other jobs hand on

MOST_BYTES = 64 * 2**20  # of all jobs, written out
MOST_LOOKUPS = 1_000_000  # of values other jobs hand on: names in expressions times the jobs that are needed


class Room:
    """What is left for one workflow."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_lookups: int = MOST_LOOKUPS) -> None:
        self._most_bytes, self._most_lookups = most_bytes, most_lookups
        self._bytes, self._pairs, self._lookups = most_bytes, MOST_PAIRS, most_lookups

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
            raise too_many_pairs(f"more than {MOST_PAIRS:,}")

    def take_lookups(self, job: str, count: int) -> None:
        """Raises Invalid."""
        self._lookups -= count
        if self._lookups < 0:
            why = f"looks more than {self._most_lookups:,} times at what other jobs hand on"
            raise wrong(f"jobs.{job}", why, "Let a small job in between gather these values, and hand on a few.")


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


def expand(document: Document, given: Mapping[str, object], room: Room | None = None) -> Expanded:
    """Raises Invalid, or TooLarge."""
    params = settle(document.parameters, given)
    room = room or Room()
    _check_size(document, room)
    try:
        for step in document.steps.values():
            _check_expressions(_Sight(document, step, frozenset(step.parents)))
        makers = (_Maker(document, step, params, room) for step in document.steps.values())
        nodes = [maker.node(place) for maker in makers for place in range(maker.step.count)]
    except RecursionError:
        raise wrong("jobs", "a job is nested too deeply") from None
    return Expanded(document, params, tuple(nodes))


def key_of(step: Step, place: int) -> str:
    return step.name if step.matrix is None else f"{step.name}.{place + 1}"


def _check_size(document: Document, room: Room) -> None:
    """Before anything is made of it: what is filled in comes on top."""
    steps = document.steps
    pairs = sum(step.count * sum(steps[name].count for name in step.needs) for step in steps.values())
    if pairs > MOST_PAIRS:
        raise too_many_pairs(f"{pairs:,}")
    try:
        size = sum(len(json.dumps(step.body, default=str)) * step.count for step in steps.values())
    except (ValueError, RecursionError):
        raise wrong("jobs", "a job is nested too deeply") from None
    room.take_bytes(size)


@dataclass(frozen=True, slots=True)
class _Sight:
    """What expressions of a job may name."""

    document: Document
    step: Step
    parents: frozenset[str]


def _check_expressions(sight: _Sight) -> None:
    """Before anything runs: everything an expression names must be there."""
    at = f"jobs.{sight.step.name}.if"
    try:
        condition = read_condition(sight.step.condition)
    except Wrong as error:
        raise wrong(at, str(error)) from None
    _check_names(sight, condition, at, may_ask_status=True)
    for field, value in sight.step.body.items():
        walk(value, partial(_check_text, sight, field))


def _check_text(sight: _Sight, field: str, text: str) -> str:
    step = sight.step
    at = f"jobs.{step.name}.{field}"
    if field == "script" or (field == "command" and isinstance(step.body["command"], str)):
        hint = "Write the command as a list of words; or use a variable: $HELIOSTAT_PARAM_NAME, or one of env."
        raise wrong(at, "a shell would read what is filled in", hint)
    try:
        template = parse_template(text)
    except Wrong as error:
        raise wrong(at, str(error)) from None
    for one in template.expressions:
        _check_names(sight, one, at, may_ask_status=False)
    if _is_late(template) and field not in FILLED_LATER:
        raise wrong(at, "cannot depend on what other jobs hand on", "Only words of command and values of env can.")
    return text


def _check_names(sight: _Sight, one: Expression, at: str, *, may_ask_status: bool) -> None:
    document, step = sight.document, sight.step
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
        if kind == "jobs" and name in document.steps and name not in sight.parents:
            raise wrong(at, f"{whole}: {step.name} does not need {name}", f"Add it: needs: [{name}].")
        is_value = len(path) == 4 and path[2] == "outputs"
        if kind == "jobs" and name in sight.parents and (is_value or path[2:] == ("state",)):
            continue
        there = f"params: {listed(document.parameters)}; jobs: {listed(step.parents)}"
        raise wrong(at, f"there is no {whole}; there are {there}")


def _is_late(template: Template) -> bool:
    return any(path[0] == "jobs" for one in template.expressions for path in names_in(one))


class _Maker:
    """Makes the variants of one job, as long as there is room."""

    def __init__(self, document: Document, step: Step, params: Values, room: Room) -> None:
        self.step = step
        self._document, self._params, self._room = document, params, room
        self._needs = _Needs(document, step)
        self._variables = _variables(params)
        self._templates: dict[str, tuple[Template, bool]] = {}
        for value in step.body.values():
            walk(value, self._template)
        self._is_late = any(late for _, late in self._templates.values())

    def node(self, place: int) -> Node:
        """Raises Invalid, or TooLarge."""
        step, values = self.step, self.step.matrix[place] if self.step.matrix else {}
        needs = self._needs.of(values)
        self._room.take_pairs(len(needs))
        key = key_of(step, place)
        scope = scope_of(Gate(key, None, self._params, values), (), is_strict=True)
        try:
            body = {field: walk(value, partial(self._filled, scope, field)) for field, value in step.body.items()}
        except Wrong as error:
            raise wrong(f"jobs.{step.name}", str(error)) from None
        whole = self._completed(body, values)
        if self._is_late:
            self._room.take_lookups(step.name, _count_lookups(whole) * len(needs))
        return Node(key, step, values, whole, needs, self._is_late)

    def _filled(self, scope: Scope, field: str, text: str) -> Value:
        template, is_late = self._template(text)
        if is_late:
            return text
        found = template.filled(scope)
        if isinstance(found, str) and field in FILLED_LATER:
            found = self._kept(found)
        self._room.take_bytes(len(found) if isinstance(found, str) else 0)
        return found

    def _kept(self, value: str) -> str:
        """A value stays what it is, also where words are filled in once more later."""
        return as_it_is(value) if self._is_late else value

    def _template(self, text: str) -> tuple[Template, bool]:
        """Read once for all variants."""
        if text not in self._templates:
            template = parse_template(text)
            self._templates[text] = template, _is_late(template)
        return self._templates[text]

    def _completed(self, body: dict[str, object], values: Values) -> dict[str, object]:
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


def _variables(values: Values) -> dict[str, str]:
    return {variable_of(name): as_text(value) for name, value in values.items()}


def _count_lookups(body: Mapping[str, object]) -> int:
    """Rather too many than too few: each names `jobs`."""
    return json.dumps([body.get("command"), body.get("env")], default=str).count("jobs")


class _Needs:
    """Whom the variants of a job need, by key."""

    def __init__(self, document: Document, step: Step) -> None:
        self.step = step
        parents = [document.steps[name] for name in step.needs]
        self._all = tuple(key_of(one, place) for one in parents for place in range(one.count))
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


def too_many_pairs(told: str) -> Invalid:
    hint = "Put a small job in between that needs all of them, and let the others need that one."
    return wrong("jobs", f"makes {told} pairs of a job and one it needs; {MOST_PAIRS:,} are allowed", hint)
