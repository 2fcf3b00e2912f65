"""Request schemas of jobs, source code, environments and nodes. Unknown fields are rejected."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StringConstraints,
    WithJsonSchema,
    create_model,
    model_validator,
)

from heliostat.api.request_bodies import Entries, RequestBody
from heliostat.api.validation_errors import JOB_FIELDS_HINT
from heliostat.models import (
    ArrayRange,
    DependencyCondition,
    JobRequest,
    JobSpec,
    ParentReference,
    PlacementRequest,
    TaskLayout,
)
from heliostat.models.dependencies import MAX_DEPENDENCIES_PER_REQUEST, parse_begin, parse_parents
from heliostat.models.environments import MAX_ENVIRONMENT_CHARACTERS, EnvironmentSpec
from heliostat.models.job_fields import FIELD_ALIASES, JOB_FIELDS, FieldKind, JobField
from heliostat.models.jobs import parse_mount
from heliostat.models.notifications import parse_triggers
from heliostat.models.provenance import MAX_DIFF_BYTES, MAX_UNTRACKED_FILES, SourceCode, remove_credentials
from heliostat.models.quantities import (
    MAX_ARRAY_SIZE,
    parse_array,
    parse_duration,
    parse_gpus,
    parse_label,
    parse_memory,
    parse_signal,
)
from heliostat.models.retries import DEFAULT_RETRY_CAUSES, RetryPolicy, parse_retry_on

_MAX_ARGUMENT = 128 * 1024 - 1  # bytes; the limit of Linux for one argument
_MAX_ARGUMENTS = 1024 * 1024  # Linux allows 2 MiB of arguments and environment together
_MAX_ENVIRONMENT = 512 * 1024
_MAX_MPI_TASKS = 1000  # their hosts are in one environment variable
_MAX_ARRAY_ELEMENTS = 100_000  # of all arrays in one request
# Shell variables: setting them would end the script that starts the job.
_SHELL_VARIABLES = {
    "UID",
    "EUID",
    "PPID",
    "SHELLOPTS",
    "BASHOPTS",
    "BASH_VERSINFO",
    "OPTIND",
    "LINENO",
    "IFS",
    "_",
}
# The GPUs that are allocated to the job: another value would use the GPUs of another job.
_QUEUE_VARIABLES = {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HELIOSTAT_MARK"}

FileText = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ENVIRONMENT_CHARACTERS, strict=True)]


class EnvironmentBody(RequestBody):
    """Texts of files: one of requirements, pyproject and conda. uv_lock needs pyproject."""

    requirements: FileText | None = None
    pyproject: FileText | None = None
    uv_lock: FileText | None = None
    conda: FileText | None = None
    python: Annotated[str, StringConstraints(min_length=1, max_length=10, strict=True)] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "EnvironmentBody":
        if sum(text is not None for text in (self.requirements, self.pyproject, self.conda)) != 1:
            raise ValueError("send one of requirements, pyproject and conda")
        if self.uv_lock is not None and self.pyproject is None:
            raise ValueError("uv_lock needs pyproject")
        return self

    def to_environment_spec(self) -> EnvironmentSpec:
        if self.requirements is not None:
            return EnvironmentSpec("requirements", (("requirements.txt", self.requirements),), self.python)
        if self.conda is not None:
            return EnvironmentSpec("conda", (("environment.yml", self.conda),), self.python)
        project = ("pyproject.toml", self.pyproject or "")
        if self.uv_lock is None:
            return EnvironmentSpec("pyproject", (project,), self.python)
        return EnvironmentSpec("uv", (project, ("uv.lock", self.uv_lock)), self.python)


Digest = Annotated[str, StringConstraints(min_length=1, max_length=64, strict=True)]
EnvironmentField = Digest | EnvironmentBody | None


def parse_environment_field(given: EnvironmentField) -> EnvironmentSpec | str | None:
    return given.to_environment_spec() if isinstance(given, EnvironmentBody) else given


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    text.encode()  # raises ValueError for text that cannot be stored
    return text


StorableText = Annotated[str, StringConstraints(max_length=4096, strict=True), AfterValidator(_storable)]


class SourceCodeBody(RequestBody):
    """The git state of the folder that a job is submitted from."""

    folder: StorableText | None = None
    commit: Annotated[str, StringConstraints(pattern="^[0-9a-f]{40,64}$", strict=True)] | None = None
    branch: StorableText | None = None
    remote: StorableText | None = None
    diff: Annotated[str, StringConstraints(max_length=MAX_DIFF_BYTES, strict=True), AfterValidator(_storable)] = ""
    is_diff_cut: StrictBool = False
    untracked: Annotated[list[StorableText], Entries(MAX_UNTRACKED_FILES)] = []
    untracked_count: Annotated[int, Field(ge=0, le=2**53, strict=True)] = 0

    def to_source_code(self) -> SourceCode:
        """Removes credentials from the URL of the remote."""
        remote = None if self.remote is None else remove_credentials(self.remote)
        values = self.model_dump() | {"remote": remote, "untracked": tuple(self.untracked)}
        return SourceCode(**values)


JobReader = Callable[[Mapping[str, object]], JobRequest]


def with_source_code(read_job: JobReader, record: SourceCodeBody | None) -> JobReader:
    """A reader for jobs that are submitted with the same code."""
    code = None if record is None else record.to_source_code()
    return lambda body: replace(read_job(body), code=code)


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    return text


def _one_argument(text: str) -> str:
    if _bytes(text) > _MAX_ARGUMENT:
        raise ValueError(f"must have at most {_MAX_ARGUMENT} bytes")
    return _no_nul(text)


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be one line of printable characters")
    if not text.strip():
        raise ValueError("must not be empty")
    return text.strip()


def _absolute(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError("must be an absolute path on the node")
    return _no_nul(text)


def _mount(text: str) -> str:
    parse_mount(text)
    return text


def _memory(value: object) -> object:
    return parse_memory(_not_too_long(value, 40)) if isinstance(value, str) else value


def _duration(value: object) -> object:
    return parse_duration(_not_too_long(value, 40)) if isinstance(value, str) else value


def _begin(value: object) -> datetime | timedelta | None:
    if value is None or isinstance(value, datetime | timedelta):
        return value
    if not isinstance(value, str):
        raise ValueError("must be a time as text: 2026-12-01T08:00Z, or +2h for in two hours")
    return parse_begin(value)


def _retry_on(value: object) -> tuple[str, ...] | None:
    return None if value is None else parse_retry_on(value)


def _notify(value: object) -> tuple[str, ...]:
    return () if value is None else parse_triggers(value)


def _array(value: object) -> ArrayRange | None:
    if value is None or isinstance(value, ArrayRange):
        return value
    if not isinstance(value, str):
        raise ValueError("must be a range as text: 0-99, 0-99%8 or 1,3,5-9")
    if _array_length(_not_too_long(value, 2000)) > MAX_ARRAY_SIZE:  # checked before it is expanded
        raise ValueError(f"an array can have at most {MAX_ARRAY_SIZE} elements, {value!r} has more")
    return parse_array(value)


def _array_length(text: str) -> int:
    ranges = re.findall(r"(\d{1,9})\s*-\s*(\d{1,9})", text[:2000])
    return text.count(",") + 1 + sum(max(0, int(last) - int(first)) for first, last in ranges)


def _not_too_many(jobs: object) -> object:
    """Limits array elements and parents before they are expanded: they could fill the memory."""
    bodies = [job for job in jobs if isinstance(job, dict)] if isinstance(jobs, list) else []
    parents = [value for job in bodies for name in _PARENTS if (value := job.get(name))]
    if (
        sum(len(names) if isinstance(names, list) else str(names).count(",") + 1 for names in parents)
        > MAX_DEPENDENCIES_PER_REQUEST
    ):
        raise ValueError(
            f"the jobs of one request can have at most {MAX_DEPENDENCIES_PER_REQUEST} dependencies in total"
        )
    arrays = [job.get("array") for job in bodies]
    if sum(_array_length(array) for array in arrays if isinstance(array, str)) > _MAX_ARRAY_ELEMENTS:
        raise ValueError(f"all arrays together can have at most {_MAX_ARRAY_ELEMENTS} elements")
    return jobs


def _not_too_long(text: str, max_length: int) -> str:
    """Checked before a regular expression is applied."""
    if len(text) > max_length:
        raise ValueError(f"must have at most {max_length} characters")
    return text


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _environment(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", name):
            raise ValueError(f"{name[:60]!a} is not a valid name of an environment variable")
        if name in _SHELL_VARIABLES:
            raise ValueError(f"the environment variable {name} cannot be set")
        if name in _QUEUE_VARIABLES:
            raise ValueError(f"the environment variable {name} is set by the queue")
        if _bytes(name) + _bytes(value) >= _MAX_ARGUMENT:
            raise ValueError(f"the environment variable {name} is larger than {_MAX_ARGUMENT} bytes")
    if sum(_bytes(name) + _bytes(value) for name, value in env.items()) > _MAX_ENVIRONMENT:
        raise ValueError(f"the environment is larger than {_MAX_ENVIRONMENT // 1024} KiB")
    return env


Argument = Annotated[str, StringConstraints(max_length=_MAX_ARGUMENT, strict=True), AfterValidator(_one_argument)]
SingleLine = Annotated[
    str, StringConstraints(min_length=1, max_length=128, strict=True), AfterValidator(_one_line)
]
LabelPart = Annotated[str, StringConstraints(max_length=200, strict=True)]
StrictInteger = Annotated[int, Field(strict=True)]
Label = Annotated[str, StringConstraints(max_length=127, strict=True), AfterValidator(parse_label)]
MountText = Annotated[str, StringConstraints(max_length=8500, strict=True), AfterValidator(_mount)]
Command = Annotated[Argument, StringConstraints(min_length=1)] | Annotated[list[Argument], Entries(10_000)]

_PARENTS = [name for one in JOB_FIELDS if one.kind == "parents" for name in (one.name, one.alias) if name]
_PARENT = {"type": ["integer", "string"]}
_WORDS = WithJsonSchema(
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "null"}]}
)
_TYPES: dict[FieldKind, Any] = {
    "command": Command,
    "signal": Annotated[str, StringConstraints(max_length=10, strict=True), AfterValidator(parse_signal)],
    "count": StrictInteger,
    "gpus": Annotated[float, Field(strict=True, allow_inf_nan=False), AfterValidator(parse_gpus)],
    "memory": Annotated[StrictInteger, BeforeValidator(_memory)],
    "duration": Annotated[StrictInteger, BeforeValidator(_duration)],
    "seconds": Annotated[float, Field(allow_inf_nan=False, strict=True)],
    "flag": StrictBool,
    "array": Annotated[ArrayRange | None, BeforeValidator(_array), Field(json_schema_extra={"type": "string"})],
    "begin": Annotated[
        datetime | timedelta | None, BeforeValidator(_begin), WithJsonSchema({"type": ["string", "null"]})
    ],
    "labels": list[Label],
    "causes": Annotated[tuple[str, ...] | None, BeforeValidator(_retry_on), _WORDS],
    "triggers": Annotated[tuple[str, ...], BeforeValidator(_notify), _WORDS],
    "parents": Annotated[
        tuple[str, ...],
        BeforeValidator(parse_parents),
        WithJsonSchema({"anyOf": [_PARENT, {"type": "array", "items": _PARENT}], "default": []}),
    ],
    "mounts": list[MountText],
    "variables": Annotated[dict[str, Argument], Entries(10_000), AfterValidator(_environment)],
    "upload": Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$", strict=True)],
    "software": EnvironmentField,
    "code": SourceCodeBody,
}
_LISTS = ("labels", "mounts")
_MAY_BE_NONE = ("array", "begin", "causes", "software")
_TEXTS: dict[FieldKind, Callable[[str], str]] = {"script": _no_nul, "line": _one_line, "folder": _absolute}
ModelType = TypeVar("ModelType", bound=BaseModel)


def with_job_fields(fields: Iterable[JobField]) -> Callable[[type[ModelType]], type[ModelType]]:
    """Adds these fields of a job to a schema."""

    def decorate(body: type[ModelType]) -> type[ModelType]:
        new: dict[str, Any] = {field.name: (_type(field), _field(field)) for field in fields}
        return create_model(body.__name__, __base__=body, __module__=body.__module__, __doc__=body.__doc__, **new)

    return decorate


def _type(field: JobField) -> Any:
    bounded = _bounded(field)
    return bounded if field.default is not None or field.kind in _MAY_BE_NONE else bounded | None


def _bounded(field: JobField) -> Any:
    """Bounds are checked before the contents: a text that is too long is not parsed."""
    maximum = None if field.maximum is None else int(field.maximum)
    if field.kind == "choice":
        return Literal[tuple(value for value, _ in field.choices)]
    if field.kind in _TEXTS:
        minimum = None if field.kind == "folder" else 1
        size = StringConstraints(min_length=minimum, max_length=maximum, strict=True)
        return Annotated[str, size, AfterValidator(_TEXTS[field.kind])]
    if field.kind in _LISTS:
        return Annotated[_TYPES[field.kind], Entries(maximum or 0)]
    return Annotated[_TYPES[field.kind], Field(ge=field.minimum, le=maximum)]


def _field(field: JobField) -> Any:
    alias = AliasChoices(field.name, field.alias) if field.alias else None
    return Field(default=field.default, validation_alias=alias, description=field.help_with_choices)


@with_job_fields(JOB_FIELDS)
class JobBody(RequestBody):
    """A job to submit. Omitted fields have their default."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    fields_hint = JOB_FIELDS_HINT

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    @model_validator(mode="before")
    @classmethod
    def _no_duplicate_fields(cls, values: object) -> object:
        for alias, name in FIELD_ALIASES.items():
            if isinstance(values, dict) and alias in values and name in values:
                raise ValueError(f"{alias} and {name} are two names of the same field: send only one of them")
        return values

    @model_validator(mode="after")
    def _check_combinations(self) -> "JobBody":
        if not self.command and self.script is None:
            raise ValueError("command or script is required")
        if self.script is not None and isinstance(self.command, str):
            raise ValueError("with a script, command must be the list of its arguments")
        if isinstance(self.command, list) and self.script is None and not self.command[0].strip():
            raise ValueError("the first word of command is empty")
        if isinstance(self.command, list) and sum(_bytes(word) + 1 for word in self.command) > _MAX_ARGUMENTS:
            raise ValueError(f"command is larger than {_MAX_ARGUMENTS} bytes")
        if self.gpu_memory is not None and not self.gpus:
            raise ValueError("gpu_memory needs gpus: it is the memory of each GPU")
        if self.upload is not None and self.workdir is not None:
            raise ValueError("upload is the working directory: omit workdir")
        if self.template == "mpi" and self.tasks > _MAX_MPI_TASKS:
            raise ValueError(f"mpi can start at most {_MAX_MPI_TASKS} tasks")
        if not self.max_retries and (self.retry_on is not None or self.retry_delay):
            raise ValueError("retry_on and retry_delay need max_retries, such as 3")
        return self

    def to_request(self, default_code: SourceCode | None = None) -> JobRequest:
        parts: dict[str, dict[str, Any]] = {"": {}, "spec": {}, "placement": {}, "retry": {}}
        for name, part, attribute in _PATHS:
            value = getattr(self, name)
            parts[part][attribute] = _READ[name](value) if name in _READ else value
        return JobRequest(
            **parts[""],
            spec=JobSpec(**parts["spec"]),
            placement=PlacementRequest(**parts["placement"]),
            retry=RetryPolicy(**parts["retry"]),
            after=self._parents(),
            code=default_code if self.record is None else self.record.to_source_code(),
        )

    def _parents(self) -> tuple[ParentReference, ...]:
        by_condition = (
            (DependencyCondition.OK, self.after),
            (DependencyCondition.ANY, self.after_any),
            (DependencyCondition.FAILED, self.after_failed),
        )
        parents = [
            ParentReference(reference, condition)
            for condition, references in by_condition
            for reference in references
        ]
        return (
            *parents,
            *(ParentReference(reference, DependencyCondition.OK, each=True) for reference in self.after_each),
        )

    def fingerprint(self) -> str:
        """Identifies equal requests: all given fields except the git state of the code."""
        return repr([(name, getattr(self, name)) for name in sorted(self.model_fields_set - {"record"})])


_PATHS = [
    (field.name, *field.request_path.rpartition(".")[::2])
    for field in JOB_FIELDS
    if field.request_path is not None
]
_READ: dict[str, Callable[[Any], Any]] = {
    "command": lambda given: ("/bin/sh", "-c", given) if isinstance(given, str) else tuple(given),
    "layout": TaskLayout,
    "labels": lambda given: tuple(dict.fromkeys(given)),
    "mounts": lambda given: tuple(map(parse_mount, given)),
    "environment": parse_environment_field,
    "retry_on": lambda given: DEFAULT_RETRY_CAUSES if given is None else given,
}


class StartForecastBody(JobBody):
    """A job to forecast, not to submit; its command is optional."""

    command: Command = Field(default=["true"], description="Only the job name derived from it matters.")


class BulkSubmitBody(RequestBody):
    fields_hint = JOB_FIELDS_HINT

    jobs: Annotated[list[JobBody], Entries(10_000, minimum=1), BeforeValidator(_not_too_many)]
    record: SourceCodeBody | None = Field(
        default=None, description="Git state of the code, for jobs without their own."
    )

    def to_requests(self) -> list[JobRequest]:
        code = None if self.record is None else self.record.to_source_code()
        return [job.to_request(code) for job in self.jobs]

    def fingerprint(self) -> str:
        return "\n".join(job.fingerprint() for job in self.jobs)


class CancelJobsBody(RequestBody):
    job_ids: Annotated[list[Annotated[StrictInteger, Field(ge=1, le=2**53)]], Entries(100_000)] = []
    array_id: Annotated[StrictInteger, Field(ge=1, le=2**53)] | None = None
    force: StrictBool = Field(default=False, description="Send KILL immediately, without a grace period.")


class WaitForJobsBody(RequestBody):
    job_ids: Annotated[list[Annotated[StrictInteger, Field(ge=1, le=2**53)]], Entries(100_000)]
    timeout_seconds: Annotated[float, Field(ge=0, le=300, allow_inf_nan=False, strict=True)] = 30.0


class DrainNodeBody(RequestBody):
    reason: SingleLine


class RecomposeNodeBody(RequestBody):
    gpus: Annotated[
        dict[LabelPart, Annotated[StrictInteger, Field(ge=0, le=64)]],
        Entries(8),
        Field(description="Number of GPUs that the node will have, by type; empty: none."),
    ]
    dry_run: bool = False


class NodeChangeBody(RequestBody):
    """Only given fields change. A label with the value null is removed."""

    labels: Annotated[dict[LabelPart, LabelPart | None], Entries(1000)] = {}
    data_class: Annotated[
        StrictInteger, Field(ge=0, le=3, description="Highest data class that the node may process.")
    ] = 0
    min_data_class: Annotated[
        StrictInteger, Field(ge=0, le=3, description="Lowest data class that the node accepts.")
    ] = 0
    splits_devices: StrictBool = Field(False, description="Whether several jobs may share one GPU.")


class ErrorDetail(BaseModel):
    code: str
    message: str
    hint: str | None
    fields: dict[str, str]


class ErrorResponse(BaseModel):
    """The body of every error response."""

    error: ErrorDetail


Json = dict[str, Any]
