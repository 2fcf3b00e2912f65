"""Workflow files: strict parsing of jobs, dependencies, conditions and retries."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from heliostat.errors import ErrorCollector, Invalid
from heliostat.models.dependencies import find_cycle
from heliostat.models.quantities import parse_duration
from heliostat.workflows.matrix import ValueMap, parse_matrix
from heliostat.workflows.parameters import Parameter, parse_parameters
from heliostat.workflows.validation_errors import format_list, format_value, invalid_field, suggest_name

MAX_JOBS = 10_000  # per workflow, with all matrices expanded
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}", re.ASCII)
_TITLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,62}", re.ASCII)
_FIELDS = {"name", "project", "params", "jobs"}
_WORKFLOW_FIELDS = {"needs", "needs_each", "if", "matrix", "retries", "retry_wait", "continue_on_failure"}
_REPLACED_FIELDS = {
    "after": "needs",
    "after_ok": "needs",
    "after_any": "needs, with `if: always()`",
    "after_failed": "needs, with `if: failure()`",
    "after_each": "needs_each",
    "array": "matrix",
    "name": "the key of the job in `jobs`",
}
_FORBIDDEN_FIELDS = ("record",)


@dataclass(frozen=True, slots=True)
class WorkflowFileStep:
    """A job of the file; with a matrix it is expanded into several jobs."""

    name: str
    job_fields: Mapping[str, object]  # the fields of a job
    needs: tuple[str, ...] = ()
    needs_each: tuple[str, ...] = ()  # of these, only the variant with the same matrix values
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
        """Number of jobs after expansion of the matrix."""
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
        raise invalid_field("workflow", "must be a mapping with the fields name, params and jobs")
    if unknown := sorted(set(map(str, given)) - _FIELDS):
        suggestion = suggest_name(unknown[0], _FIELDS)
        raise invalid_field(
            unknown[0][:60], f"unknown field{suggestion}; known fields: {format_list(sorted(_FIELDS))}"
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
        raise invalid_field("jobs", "must be a mapping of names to jobs")
    if len(jobs) > MAX_JOBS:
        raise invalid_field("jobs", f"a workflow may have at most {MAX_JOBS:,} jobs; this one has {len(jobs):,}")
    steps = _steps(jobs)
    _check_graph(steps)
    return WorkflowDocument(name, steps, project, parse_parameters(given.get("params")))


def _steps(jobs: Mapping[object, object]) -> dict[str, WorkflowFileStep]:
    """Jobs are counted during parsing, because each matrix may be large."""
    steps: dict[str, WorkflowFileStep] = {}
    errors = ErrorCollector()
    count = 0
    for key, body in jobs.items():
        with errors.part("", ""):
            step = steps[str(key)] = _step(str(key), body)
            count += step.job_count
        if count > MAX_JOBS:
            reason = f"gives more than {MAX_JOBS:,} jobs, which is the limit"
            raise invalid_field("jobs", reason, "Remove some values from the matrices.")
    errors.raise_errors()
    return steps


def _step(name: str, given: object) -> WorkflowFileStep:
    field_path = f"jobs.{name[:60]}"
    if _NAME.fullmatch(name) is None:
        raise invalid_field(
            field_path, "a name consists of letters, digits, _ and -, and begins with a letter or _"
        )
    if not isinstance(given, Mapping):
        raise invalid_field(field_path, "must be a mapping of fields, such as `command: python train.py`")
    for other, instead in _REPLACED_FIELDS.items():
        if other in given:
            raise invalid_field(f"{field_path}.{other}", "is not allowed in a workflow", f"Use {instead} instead.")
    for other in _FORBIDDEN_FIELDS:
        if other in given:
            raise invalid_field(f"{field_path}.{other}", "is not allowed in a workflow", "Remove it.")
    options = {key: given[key] for key in _WORKFLOW_FIELDS if key in given}
    condition, continues = options.get("if"), options.get("continue_on_failure", False)
    if isinstance(condition, bool):
        condition = "always()" if condition else "false"
    if condition is not None and not isinstance(condition, str):
        raise invalid_field(f"{field_path}.if", "must be an expression, such as `failure()` or `params.lr < 0.1`")
    if not isinstance(continues, bool):
        raise invalid_field(f"{field_path}.continue_on_failure", "must be true or false")
    return WorkflowFileStep(
        name=name,
        job_fields={str(key): value for key, value in given.items() if key not in _WORKFLOW_FIELDS},
        needs=_names(field_path, options, "needs"),
        needs_each=_names(field_path, options, "needs_each"),
        condition=condition,
        matrix=None if options.get("matrix") is None else parse_matrix(f"{field_path}.matrix", options["matrix"]),
        retries=_count(f"{field_path}.retries", options.get("retries", 0)),
        retry_seconds=_seconds(f"{field_path}.retry_wait", options.get("retry_wait", 30)),
        continue_on_failure=continues,
    )


def _names(field_path: str, options: Mapping[str, object], field_name: str) -> tuple[str, ...]:
    given = options.get(field_name)
    given_names = [given] if isinstance(given, str) else given if given is not None else []
    if not isinstance(given_names, list) or not all(isinstance(name, str) for name in given_names):
        raise invalid_field(f"{field_path}.{field_name}", "must be the name of a job, or a list of names")
    counts = Counter(given_names)
    if len(counts) < len(given_names):
        duplicate = next(name for name, count in counts.items() if count > 1)
        raise invalid_field(f"{field_path}.{field_name}", f"contains {format_value(duplicate)} twice")
    return tuple(given_names)


def _count(field_path: str, given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= 100:
        raise invalid_field(field_path, "must be a whole number from 0 to 100")
    return given


def _seconds(field_path: str, given: object) -> int:
    try:
        seconds = parse_duration(given[:40]) if isinstance(given, str) else given
    except ValueError as error:
        raise invalid_field(field_path, str(error)) from None
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 <= seconds <= 86400:
        raise invalid_field(field_path, "must be a duration of at most one day, such as 30s or 5m")
    return seconds


def _check_graph(steps: Mapping[str, WorkflowFileStep]) -> None:
    errors = ErrorCollector()
    for step in steps.values():
        with errors.part("", ""):
            _check_parents(step, steps)
    errors.raise_errors()
    _refuse_cycle(steps)


def _check_parents(step: WorkflowFileStep, steps: Mapping[str, WorkflowFileStep]) -> None:
    for parent in step.parents:
        if parent not in steps:
            suggestion = suggest_name(parent, steps)
            reason = f"job {format_value(parent)} does not exist in this workflow{suggestion}"
            raise invalid_field(f"jobs.{step.name}.needs", reason)
    for parent in step.needs_each:
        if step.matrix is None or steps[parent].matrix is None:
            reason = f"both {step.name} and {parent} need a matrix"
            raise invalid_field(f"jobs.{step.name}.needs_each", reason, "Use needs to wait for all variants.")


def _refuse_cycle(steps: Mapping[str, WorkflowFileStep]) -> None:
    names = list(steps)
    indexes = {name: index for index, name in enumerate(names)}
    cycle = find_cycle({indexes[step.name]: [indexes[name] for name in step.parents] for step in steps.values()})
    if cycle is None:
        return
    cycle_names = [names[index] for index in cycle]
    shown = cycle_names if len(cycle_names) <= 8 else [*cycle_names[:6], "…", cycle_names[-1]]
    raise Invalid(
        f"These jobs depend on each other in a cycle: {' → '.join(shown)}.",
        "None of them could start: remove one of these dependencies.",
        code="cycle",
        fields={f"jobs.{cycle_names[0]}.needs": "leads back to the job itself"},
    )
