"""Job requests and jobs as API bodies."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from heliostat.models import ArrayRange, DependencyCondition, Job, JobRequest, ParentReference
from heliostat.models.dependencies import format_begin
from heliostat.models.environments import EnvironmentSpec
from heliostat.models.job_fields import JOB_FIELDS, FieldKind, JobField
from heliostat.models.retries import DEFAULT_RETRY_CAUSES, DEFAULT_RETRY_POLICY
from heliostat.services.sessions.lifecycle import TOKEN_VARIABLE

JobBodyDict = dict[str, Any]

_MIB_PER_UNIT = (("T", 2**20), ("G", 2**10))
_SECONDS_PER_UNIT = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_SHELL = ("/bin/sh", "-c")


def request_to_body(request: JobRequest) -> JobBodyDict:
    """Fields that differ from the default, in readable form. Parsing the body gives the same request."""
    body: JobBodyDict = {}
    for field, value in field_values(_without_token(request)):
        if not is_default_value(field, value):
            body[field.name] = _READABLE[field.kind](value) if field.kind in _READABLE else value
    if "command" in body and "script" not in body:
        body["command"] = _line_or_words(body["command"])
    return body


def field_values(request: JobRequest) -> Iterator[tuple[JobField, Any]]:
    """All fields with their JSON values."""
    parents = _parents(request)
    for field in JOB_FIELDS:
        if field.request_path is None:
            yield field, parents.get(field.name)
            continue
        value = attrgetter(field.request_path)(request)
        yield field, _PLAIN[field.kind](value) if field.kind in _PLAIN and value is not None else value


def is_default_value(field: JobField, value: object) -> bool:
    default = list(DEFAULT_RETRY_CAUSES) if field.kind == "causes" else field.default
    return value is None or value in ([], {}) or value == default


def job_to_request(job: Job) -> JobRequest:
    """A request for the same job; for an array element, only this element."""
    resources = job.resources
    return JobRequest(
        spec=job.spec,
        name=job.name,
        project=job.project,
        cpus=resources.cpus,
        memory_mib=resources.memory_mib,
        gpus=resources.gpus,
        gpu_type=resources.gpu_type,
        gpu_memory_mib=resources.gpu_memory_mib,
        placement=job.placement,
        time_limit_seconds=job.time_limit_seconds,
        priority=job.priority,
        priority_class=job.priority_class,
        preemptible=job.preemptible,
        overtime=job.overtime,
        max_retries=job.max_retries,
        array=None if job.array_index is None else ArrayRange((job.array_index,)),
        after=tuple(
            ParentReference(str(one.parent_id), one.condition) for one in job.after if one.condition in _AFTER
        ),
        begin=None if job.retries else job.begin_at,  # after a retry, begin_at is the time of the retry
        environment=job.environment,
        retry=job.retry if job.max_retries else DEFAULT_RETRY_POLICY,
        notify=job.notify,
    )


def memory_text(mib: int) -> str:
    """`16G`, `1500M`."""
    unit, size = next(((unit, size) for unit, size in _MIB_PER_UNIT if mib and mib % size == 0), ("M", 1))
    return f"{mib // size}{unit}"


def duration_text(seconds: float) -> str:
    """`1d12h`, `90s`; fractions of a second as a number."""
    left = int(seconds)
    if left != seconds or left <= 0:
        return f"{simplify_number(seconds)}"
    parts: list[str] = []
    for unit, size in _SECONDS_PER_UNIT:
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return "".join(parts)


def array_text(array: ArrayRange) -> str:
    """`0-99%8`, `1,3,5-9`."""
    runs = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in _runs(array.indexes))
    return runs if array.limit is None else f"{runs}%{array.limit}"


def simplify_number(value: float) -> float:
    """Integers without a decimal point."""
    return int(value) if value == int(value) else value


def changes_to_body(change: Mapping[str, object]) -> JobBodyDict:
    """Changes of a what-if suggestion as body fields; None removes a field."""
    changed = dict(change)
    for name, to_text in (("memory", memory_text), ("gpu_memory", memory_text), ("time_limit", duration_text)):
        if isinstance(value := changed.get(name), int):
            changed[name] = to_text(value)
    return changed


def _parents(request: JobRequest) -> dict[str, list[int | str]]:
    """Parent references by field."""
    parents: dict[str, list[int | str]] = {}
    for parent in request.after:
        name = "after_each" if parent.each else _AFTER[parent.rule]
        parents.setdefault(name, []).append(parent.reference if parent.job_id is None else parent.job_id)
    return parents


def _environment(spec: EnvironmentSpec | str | None) -> JobBodyDict | str | None:
    """Files by their API names, or a digest."""
    if spec is None or isinstance(spec, str):
        return spec
    texts: JobBodyDict = {_FILES[name]: text for name, text in spec.files}
    return texts if spec.python is None else {**texts, "python": spec.python}


_FILES = {
    "requirements.txt": "requirements",
    "pyproject.toml": "pyproject",
    "uv.lock": "uv_lock",
    "environment.yml": "conda",
}
_AFTER = {
    DependencyCondition.OK: "after",
    DependencyCondition.ANY: "after_any",
    DependencyCondition.FAILED: "after_failed",
}


def _line_or_words(words: list[str]) -> str | list[str]:
    return words[2] if len(words) == 3 and tuple(words[:2]) == _SHELL and words[2] else words


def _without_token(request: JobRequest) -> JobRequest:
    """Without the secret token of a session."""
    env = {name: value for name, value in request.spec.env.items() if name != TOKEN_VARIABLE}
    return replace(request, spec=replace(request.spec, env=env))


def _runs(indexes: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    first = last = indexes[0]
    for index in indexes[1:]:
        if index != last + 1:
            yield first, last
            first = index
        last = index
    yield first, last


_PLAIN: dict[FieldKind, Callable[[Any], Any]] = {
    "command": list,
    "choice": str,
    "array": array_text,
    "begin": format_begin,
    "labels": list,
    "causes": list,
    "triggers": list,
    "mounts": lambda mounts: [str(mount) for mount in mounts],
    "variables": dict,
    "software": _environment,
}
_READABLE: dict[FieldKind, Callable[[Any], Any]] = {
    "gpus": simplify_number,
    "memory": memory_text,
    "duration": duration_text,
    "seconds": simplify_number,
}
