"""Personal defaults of job fields, from `~/.config/heliostat/defaults.toml`."""

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer

from heliostat.models.job_fields import JOB_FIELDS, JobField

_EXCLUDED_KINDS = ("command", "script", "array", "upload", "parents", "begin", "code")  # belong to one job
_FIELDS = [field for field in JOB_FIELDS if field.kind not in _EXCLUDED_KINDS]
_FIELDS_BY_NAME = {name: field for field in _FIELDS for name in (field.name, field.alias) if name}


def defaults_path(environ: Mapping[str, str] = os.environ) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "heliostat" / "defaults.toml"


def read_job_defaults(fields: Iterable[JobField] = JOB_FIELDS) -> dict[str, Any]:
    """The defaults of these fields, by their name in the Python client. Raises BadParameter."""
    path = defaults_path()
    try:
        text = path.read_text(encoding="utf-8")
        import tomllib  # only here: most people have no such file

        content = tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _file_error(path, str(error)) from error
    if unknown := sorted(content.keys() - _FIELDS_BY_NAME.keys()):
        similar = difflib.get_close_matches(unknown[0], _FIELDS_BY_NAME, 1)
        suggestion = f" (did you mean {similar[0]}?)" if similar else ""
        raise _file_error(path, f"{unknown[0]} cannot have a default{suggestion}")
    names = {field.name for field in fields}
    found = [(_FIELDS_BY_NAME[name], value) for name, value in content.items()]
    return {field.python_name: value for field, value in found if field.name in names}


def merge_job_fields(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Later layers win; variables of `env` are merged by name, and a folder to upload replaces a workdir."""
    merged: dict[str, Any] = {}
    for layer in layers:
        env = {**merged.get("env", {}), **layer.get("env", {})}
        merged |= {**layer, **({"env": env} if env else {})}
        if "upload" in layer:
            merged.pop("workdir", None)
    return merged


def _file_error(path: Path, problem: str) -> typer.BadParameter:
    return typer.BadParameter(f"{problem.rstrip('.')}.", param_hint=str(path))
