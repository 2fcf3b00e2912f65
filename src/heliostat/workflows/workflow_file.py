"""A workflow file, read strictly: every name known, every expression readable, no way round."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from heliostat.errors import Invalid
from heliostat.models.dependencies import find_cycle
from heliostat.models.quantities import parse_duration
from heliostat.workflows.matrix import ValueMap, parse_matrix
from heliostat.workflows.parameters import Parameter, parse_parameters
from heliostat.workflows.validation_errors import format_list, format_value, invalid_field, suggest_name

MAX_JOBS = 10_000  # of one workflow, with all its matrices
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}", re.ASCII)
_TITLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,62}", re.ASCII)
_FIELDS = {"name", "project", "params", "jobs"}
_OWN = {"needs", "needs_each", "if", "matrix", "retries", "retry_wait", "continue_on_failure"}
_NOT_HERE = {
    "after": "needs",
    "after_ok": "needs",
    "after_any": "needs, with `if: always()`",
    "after_failed": "needs, with `if: failure()`",
    "after_each": "needs_each",
    "array": "matrix",
    "name": "the name the job has in `jobs`",
    "record": "nothing",
}


@dataclass(frozen=True, slots=True)
class WorkflowFileStep:
    """A job of the file; with a matrix it becomes many."""

    name: str
    job_fields: Mapping[str, object]  # the fields of a job
    needs: tuple[str, ...] = ()
    needs_each: tuple[str, ...] = ()  # of these, the one with the same values
    condition: str | None = None
    matrix: tuple[ValueMap, ...] | None = None
    retries: int = 0
    retry_seconds: int = 30
    continue_on_failure: bool = False

    @property
    def parents(self) -> tuple[str, ...]:
        return (*self.needs, *self.needs_each)

    @property
    def job_count(self) -> int:
        """How many jobs it becomes."""
        return 1 if self.matrix is None else len(self.matrix)


@dataclass(frozen=True, slots=True)
class WorkflowDocument:
    name: str
    steps: Mapping[str, WorkflowFileStep]
    project: str | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


def parse_workflow(given: object) -> WorkflowDocument:
    """Raises Invalid, with the field."""
    if not isinstance(given, Mapping):
        raise invalid_field("workflow", "must be a set of fields: name, params, jobs")
    if unknown := sorted(set(map(str, given)) - _FIELDS):
        near = suggest_name(unknown[0], _FIELDS)
        raise invalid_field(
            unknown[0][:60], f"there is no such field{near}; there are {format_list(sorted(_FIELDS))}"
        )
    name, project = given.get("name"), given.get("project")
    if not isinstance(name, str) or _TITLE.fullmatch(name) is None:
        raise invalid_field(
            "name", "must be 1 to 63 letters, digits, spaces, _ . - and begin with a letter or digit"
        )
    if project is not None and not isinstance(project, str):
        raise invalid_field("project", "must be the name of a project")
    jobs = given.get("jobs")
    if not isinstance(jobs, Mapping) or not jobs:
        raise invalid_field("jobs", "must be a set of jobs, each under its name")
    if len(jobs) > MAX_JOBS:
        raise invalid_field("jobs", f"a workflow may have {MAX_JOBS} jobs, this one has {len(jobs)}")
    steps = _steps(jobs)
    _check_graph(steps)
    return WorkflowDocument(name, steps, project, parse_parameters(given.get("params")))


def _steps(jobs: Mapping[object, object]) -> dict[str, WorkflowFileStep]:
    """Counted while they are read: each matrix may be large."""
    steps: dict[str, WorkflowFileStep] = {}
    count = 0
    for key, body in jobs.items():
        step = steps[str(key)] = _step(str(key), body)
        count += step.job_count
        if count > MAX_JOBS:
            why = f"makes more than {MAX_JOBS:,} jobs, which is the most allowed"
            raise invalid_field("jobs", why, "Take some values of matrices away.")
    return steps


def _step(name: str, given: object) -> WorkflowFileStep:
    at = f"jobs.{name[:60]}"
    if _NAME.fullmatch(name) is None:
        raise invalid_field(at, "a name has letters, digits, _ and -, and begins with a letter")
    if not isinstance(given, Mapping):
        raise invalid_field(at, "must be a set of fields, such as `command: python train.py`")
    for other, instead in _NOT_HERE.items():
        if other in given:
            raise invalid_field(f"{at}.{other}", "is not for jobs of a workflow", f"Use {instead} instead.")
    own = {key: given[key] for key in _OWN if key in given}
    condition, goes_on = own.get("if"), own.get("continue_on_failure", False)
    if isinstance(condition, bool):
        condition = "always()" if condition else "false"
    if condition is not None and not isinstance(condition, str):
        raise invalid_field(f"{at}.if", "must be an expression, such as `failure()` or `params.lr < 0.1`")
    if not isinstance(goes_on, bool):
        raise invalid_field(f"{at}.continue_on_failure", "must be true or false")
    return WorkflowFileStep(
        name=name,
        job_fields={str(key): value for key, value in given.items() if key not in _OWN},
        needs=_names(at, own, "needs"),
        needs_each=_names(at, own, "needs_each"),
        condition=condition,
        matrix=None if own.get("matrix") is None else parse_matrix(f"{at}.matrix", own["matrix"]),
        retries=_count(f"{at}.retries", own.get("retries", 0)),
        retry_seconds=_seconds(f"{at}.retry_wait", own.get("retry_wait", 30)),
        continue_on_failure=goes_on,
    )


def _names(at: str, own: Mapping[str, object], field_name: str) -> tuple[str, ...]:
    given = own.get(field_name)
    names = [given] if isinstance(given, str) else given if given is not None else []
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise invalid_field(f"{at}.{field_name}", "must be the name of a job, or a list of such")
    counts = Counter(names)
    if len(counts) < len(names):
        twice = next(one for one, count in counts.items() if count > 1)
        raise invalid_field(f"{at}.{field_name}", f"names {format_value(twice)} twice")
    return tuple(names)


def _count(at: str, given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= 100:
        raise invalid_field(at, "must be a whole number from 0 to 100")
    return given


def _seconds(at: str, given: object) -> int:
    try:
        seconds = parse_duration(given[:40]) if isinstance(given, str) else given
    except ValueError as error:
        raise invalid_field(at, str(error)) from None
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 <= seconds <= 86400:
        raise invalid_field(at, "must be a time of at most a day: 30s, 5m")
    return seconds


def _check_graph(steps: Mapping[str, WorkflowFileStep]) -> None:
    for step in steps.values():
        for parent in step.parents:
            if parent not in steps:
                near = suggest_name(parent, steps)
                why = f"there is no job {format_value(parent)} in this workflow{near}"
                raise invalid_field(f"jobs.{step.name}.needs", why)
        for parent in step.needs_each:
            if step.matrix is None or steps[parent].matrix is None:
                why = f"{step.name} and {parent} need a matrix both"
                raise invalid_field(f"jobs.{step.name}.needs_each", why, "Use needs to wait for all of them.")
    _refuse_cycle(steps)


def _refuse_cycle(steps: Mapping[str, WorkflowFileStep]) -> None:
    names = list(steps)
    places = {name: place for place, name in enumerate(names)}
    cycle = find_cycle({places[one.name]: [places[name] for name in one.parents] for one in steps.values()})
    if cycle is None:
        return
    way = [names[place] for place in cycle]
    told = way if len(way) <= 8 else [*way[:6], "…", way[-1]]
    raise Invalid(
        f"These jobs wait for one another: {' → '.join(told)}.",
        "None of them could ever start: take one of these steps away.",
        code="cycle",
        fields={f"jobs.{way[0]}.needs": "leads back to the job itself"},
    )
