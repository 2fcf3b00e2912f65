"""Python's arguments as the API's request bodies."""

import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from heliostat.client.environments import environment_body
from heliostat.client.jobs import JobArray, JobHandle
from heliostat.models.job_fields import FIELD_ALIASES, JOB_FIELDS, FieldKind

_FIELDS = {field.python_name: field for field in JOB_FIELDS}
_ALSO = FIELD_ALIASES | {field.name: field.python_name for field in JOB_FIELDS}  # as job files write them


def job_body(fields: Mapping[str, Any]) -> dict[str, Any]:
    """One job as POST /jobs takes it. What is None is left to the server."""
    given = {_ALSO.get(name, name): value for name, value in fields.items()}
    if unknown_fields := given.keys() - _FIELDS.keys():
        unknown = min(unknown_fields)
        raise TypeError(f"a job has no field {unknown!r}; it has: {', '.join(sorted(_FIELDS))}")
    if isinstance(begin := given.get("begin"), datetime | timedelta):
        given["begin"] = _begin(begin)
    given = with_environment_spec(given)
    known = [(_FIELDS[name], value) for name, value in given.items() if value is not None]
    return {field.name: _plain(field.kind, value) for field, value in known}


def with_environment_spec(given: dict[str, Any]) -> dict[str, Any]:
    """`image:NAME` is an image; files are read here, where they are."""
    environment = given.get("environment")
    if environment is None:
        return given
    if isinstance(environment, str) and environment.startswith("image:"):
        return {**given, "environment": None, "image": environment.removeprefix("image:")}
    return {**given, "environment": environment_body(environment)}


def _plain(kind: FieldKind, value: Any) -> Any:
    if kind == "script" and isinstance(value, os.PathLike):
        return Path(value).read_text(encoding="utf-8")
    if kind in ("labels", "mounts") or (kind in ("causes", "triggers") and not isinstance(value, str)):
        return list(value)
    if kind == "folder":
        return os.fspath(value)
    if kind == "variables":
        return {key: str(text) for key, text in value.items()}
    if kind == "command" and not isinstance(value, str):
        return [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in value]
    return _parents(value) if kind == "parents" else value


def _parents(value: Any) -> Any:
    if isinstance(value, JobHandle):
        return value.id
    if isinstance(value, JobArray):
        return f"array:{value.id}"
    return value if isinstance(value, int | str) else [_parents(one) for one in value]


def _begin(value: datetime | timedelta) -> str:
    """A time without a zone is that of this machine."""
    if isinstance(value, timedelta):
        return f"+{max(0, int(value.total_seconds()))}s"
    return value.astimezone().isoformat()
