"""Options form of JupyterHub: renders it and parses the user's choices into fields of a job. Pure."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from html import escape
from typing import Any

from heliostat.errors import Invalid

FIELDS = ("gpus", "cpus", "memory", "time", "project", "environment")
_MAX_TEXT_LENGTH = 200
_LABELS = {
    "gpus": ("GPUs", "0, 1, 2, or a fraction: 0.5"),
    "cpus": ("CPUs", "empty: a fair share of the node"),
    "memory": ("Memory", "16G; empty: a fair share of the node"),
    "time": ("Time limit", "4h, 1d12h; the server then stops"),
    "project": ("Project", "empty: your default project"),
    "environment": ("Environment", ""),
}


def render_form(fields: Sequence[str], defaults: Mapping[str, Any], environments: Collection[str]) -> str:
    """HTML for the hub's form; empty if there is nothing to choose."""
    shown = [name for name in fields if name != "environment" or environments]
    return "\n".join(_row(name, str(defaults.get(name, "")), environments) for name in shown)


def read_form(form_data: Mapping[str, Sequence[str]], fields: Collection[str]) -> dict[str, str]:
    """The non-empty values of these fields; the hub's own fields are ignored."""
    texts = {name: form_data[name][0].strip() for name in fields if form_data.get(name)}
    return {name: text for name, text in texts.items() if text}


def parse_user_options(
    options: Mapping[str, Any], fields: Collection[str], environments: Mapping[str, Any]
) -> dict[str, Any]:
    """The options as fields of a job. Raises Invalid: clients can send anything, also without the form."""
    for name in options:
        if name not in fields:
            hint = f"This hub lets you choose: {', '.join(fields) or 'nothing'}."
            raise _invalid(str(name)[:_MAX_TEXT_LENGTH], "cannot be chosen on this hub", hint)
    parsed = {name: _PARSERS[name](name, value) for name, value in options.items() if value not in (None, "")}
    if "environment" not in parsed:
        return parsed
    if parsed["environment"] not in environments:
        raise _invalid("environment", "does not exist on this hub", f"Choose one of: {', '.join(environments)}.")
    return parsed | {"environment": environments[parsed["environment"]]}


def _row(name: str, value: str, environments: Collection[str]) -> str:
    label, hint = _LABELS[name]
    if name == "environment":
        options = "".join(f"<option>{escape(title)}</option>" for title in ("", *environments))
        field = f'<select class="form-control" id="{name}" name="{name}">{options}</select>'
    else:
        attributes = f'placeholder="{escape(hint)}" value="{escape(value)}"'
        field = (
            f'<input class="form-control" id="{name}" name="{name}" maxlength="{_MAX_TEXT_LENGTH}" {attributes}>'
        )
    return f'<div class="form-group mb-3"><label for="{name}">{label}</label>{field}</div>'


def _number(name: str, value: Any) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise _invalid(name, "must be a number, at least 0")
    return int(number) if number.is_integer() else number


def _count(name: str, value: Any) -> int:
    number = _number(name, value)
    if not isinstance(number, int) or number < 1:
        raise _invalid(name, "must be a whole number, at least 1")
    return number


def _text(name: str, value: Any) -> str:
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text or len(text) > _MAX_TEXT_LENGTH or not text.isprintable():
        raise _invalid(name, f"must be a text of at most {_MAX_TEXT_LENGTH} characters")
    return text


def _duration(name: str, value: Any) -> str:
    """A number is seconds, as in the API."""
    return f"{_count(name, value)}s" if isinstance(value, int) else _text(name, value)


_PARSERS: Mapping[str, Callable[[str, Any], Any]] = {
    "gpus": _number,
    "cpus": _count,
    "memory": _text,
    "time": _duration,
    "project": _text,
    "environment": _text,
}


def _invalid(name: str, problem: str, hint: str | None = None) -> Invalid:
    return Invalid(f"{name} {problem}.", hint, fields={name: problem})
