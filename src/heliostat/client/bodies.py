"""Python's arguments as the API's request bodies."""

import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from heliostat.client.environments import environment_body
from heliostat.client.jobs import JobArray, JobHandle
from heliostat.client.shapes import JobFields

_FIELDS = frozenset(JobFields.__annotations__)
_RENAMED = {"time": "time_limit"}
_ALSO = {"time_limit": "time", "class": "priority_class", "after_ok": "after"}  # as job files write them


def job_body(fields: Mapping[str, Any]) -> dict[str, Any]:
    """One job as POST /jobs takes it. What is None is left to the server."""
    given = {_ALSO.get(name, name): value for name, value in fields.items()}
    if not given.keys() <= _FIELDS:
        unknown = min(given.keys() - _FIELDS)
        raise TypeError(f"a job has no field {unknown!r}; it has: {', '.join(sorted(_FIELDS))}")
    if isinstance(begin := given.get("begin"), datetime | timedelta):
        given["begin"] = _begin(begin)
    given = _with_software(given)
    return {_RENAMED.get(name, name): _plain(name, value) for name, value in given.items() if value is not None}


def _with_software(given: dict[str, Any]) -> dict[str, Any]:
    """`image:NAME` is an image; files are read here, where they are."""
    environment = given.get("environment")
    if environment is None:
        return given
    if isinstance(environment, str) and environment.startswith("image:"):
        return {**given, "environment": None, "image": environment.removeprefix("image:")}
    return {**given, "environment": environment_body(environment)}


def _plain(name: str, value: Any) -> Any:
    if name == "script" and isinstance(value, os.PathLike):
        return Path(value).read_text(encoding="utf-8")
    if name in ("labels", "mounts") or (name in ("retry_on", "notify") and not isinstance(value, str)):
        return list(value)
    if name == "workdir":
        return os.fspath(value)
    if name == "env":
        return {key: str(text) for key, text in value.items()}
    if name == "command" and not isinstance(value, str):
        return [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in value]
    return _parents(value) if name.startswith("after") else value


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
