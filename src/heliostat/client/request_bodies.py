"""Converts Python arguments to request bodies of the API."""

import difflib
import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from heliostat.client.environments import environment_body
from heliostat.client.jobs import JobArray, JobHandle
from heliostat.models.job_fields import JOB_FIELDS, FieldKind

_FIELDS = {field.python_name: field for field in JOB_FIELDS}
_OTHER_NAMES = {name: field.python_name for field in JOB_FIELDS for name in (field.name, field.alias)}


def job_body(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The body of POST /jobs; fields that are None get the server's default."""
    values = rename_api_fields(fields)
    if unknown_fields := values.keys() - _FIELDS.keys():
        raise TypeError(_unknown_field_message(min(unknown_fields)))
    if isinstance(begin := values.get("begin"), datetime | timedelta):
        values["begin"] = _begin(begin)
    values = with_environment_spec(values)
    given = [(_FIELDS[name], value) for name, value in values.items() if value is not None]
    return {field.name: _to_json(field.kind, value) for field, value in given}


def rename_api_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the API and of job files by their name in this client."""
    return {_OTHER_NAMES.get(name, name): value for name, value in fields.items()}


def _unknown_field_message(unknown: str) -> str:
    similar = difflib.get_close_matches(unknown, _FIELDS, 1)
    fields = f"did you mean {similar[0]}?" if similar else f"its fields are: {', '.join(sorted(_FIELDS))}"
    return f"a job has no field {unknown!r}; {fields}"


def with_environment_spec(fields: dict[str, Any]) -> dict[str, Any]:
    """Converts the field `environment`: `image:NAME` becomes `image`, files are replaced by their contents."""
    environment = fields.get("environment")
    if environment is None:
        return fields
    if isinstance(environment, str) and environment.startswith("image:"):
        return {**fields, "environment": None, "image": environment.removeprefix("image:")}
    return {**fields, "environment": environment_body(environment)}


def _to_json(kind: FieldKind, value: Any) -> Any:
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
    return value if isinstance(value, int | str) else [_parents(parent) for parent in value]


def _begin(value: datetime | timedelta) -> str:
    """A time without a zone is local time."""
    if isinstance(value, timedelta):
        return f"+{max(0, int(value.total_seconds()))}s"
    return value.astimezone().isoformat()
