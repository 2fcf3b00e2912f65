"""The type of each kind of job field, with its checks, for the schemas of requests."""

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Field,
    StrictBool,
    StringConstraints,
    WithJsonSchema,
    create_model,
)

from heliostat.api.environment_schemas import EnvironmentField
from heliostat.api.field_types import StrictInteger, one_line
from heliostat.api.request_bodies import Entries
from heliostat.api.source_code_schemas import SourceCodeBody
from heliostat.models import ArrayRange
from heliostat.models.dependencies import parse_begin, parse_parents
from heliostat.models.job_fields import FieldKind, JobField
from heliostat.models.jobs import parse_mount
from heliostat.models.notifications import parse_triggers
from heliostat.models.quantities import (
    MAX_ARRAY_SIZE,
    parse_array,
    parse_duration,
    parse_gpus,
    parse_label,
    parse_memory,
    parse_signal,
)
from heliostat.models.retries import parse_retry_on

_MAX_ARGUMENT = 128 * 1024 - 1  # bytes; the limit of Linux for one argument
_MAX_ENVIRONMENT = 512 * 1024
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


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    return text


def _one_argument(text: str) -> str:
    if byte_length(text) > _MAX_ARGUMENT:
        raise ValueError(f"must have at most {_MAX_ARGUMENT} bytes")
    return _no_nul(text)


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
        raise ValueError("must be a time as text: 2026-12-01T08:00Z, or +2h for two hours from now")
    return parse_begin(value)


def _time_or_interval(value: object) -> datetime | timedelta:
    if (given := _begin(value)) is None:
        raise ValueError("must be a time as text: 2026-12-01T15:00Z, or +4h for four hours from now")
    return given


def _retry_on(value: object) -> tuple[str, ...] | None:
    return None if value is None else parse_retry_on(value)


def _notify(value: object) -> tuple[str, ...]:
    return () if value is None else parse_triggers(value)


def _array(value: object) -> ArrayRange | None:
    if value is None or isinstance(value, ArrayRange):
        return value
    if not isinstance(value, str):
        raise ValueError("must be a range as text: 0-99, 0-99%8 or 1,3,5-9")
    if array_length(_not_too_long(value, 2000)) > MAX_ARRAY_SIZE:  # checked before it is expanded
        raise ValueError(f"an array can have at most {MAX_ARRAY_SIZE} elements, {value!r} has more")
    return parse_array(value)


def array_length(text: str) -> int:
    ranges = re.findall(r"(\d{1,9})\s*-\s*(\d{1,9})", text[:2000])
    return text.count(",") + 1 + sum(max(0, int(last) - int(first)) for first, last in ranges)


def _not_too_long(text: str, max_length: int) -> str:
    """Checked before a regular expression is applied."""
    if len(text) > max_length:
        raise ValueError(f"must have at most {max_length} characters")
    return text


def byte_length(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _environment(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", name):
            raise ValueError(f"{name[:60]!a} is not a valid name of an environment variable")
        if name in _SHELL_VARIABLES:
            raise ValueError(f"the environment variable {name} cannot be set")
        if name in _QUEUE_VARIABLES:
            raise ValueError(f"the environment variable {name} is set by the queue")
        if byte_length(name) + byte_length(value) >= _MAX_ARGUMENT:
            raise ValueError(f"the environment variable {name} is larger than {_MAX_ARGUMENT} bytes")
    if sum(byte_length(name) + byte_length(value) for name, value in env.items()) > _MAX_ENVIRONMENT:
        raise ValueError(f"the environment is larger than {_MAX_ENVIRONMENT // 1024} KiB")
    return env


Argument = Annotated[str, StringConstraints(max_length=_MAX_ARGUMENT, strict=True), AfterValidator(_one_argument)]
Label = Annotated[str, StringConstraints(max_length=127, strict=True), AfterValidator(parse_label)]
MountText = Annotated[str, StringConstraints(max_length=8500, strict=True), AfterValidator(_mount)]
Command = Annotated[Argument, StringConstraints(min_length=1)] | Annotated[list[Argument], Entries(10_000)]

_PARENT = {"type": ["integer", "string"]}
_WORDS = WithJsonSchema(
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "null"}]}
)
TimeOrInterval = Annotated[
    datetime | timedelta,
    BeforeValidator(_time_or_interval),
    WithJsonSchema({"type": "string"}),
    Field(description="ISO 8601, or `+4h` for four hours from now."),
]
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
_TEXTS: dict[FieldKind, Callable[[str], str]] = {"script": _no_nul, "line": one_line, "folder": _absolute}
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
