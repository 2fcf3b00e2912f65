"""What people may ask for when they start a server on a hub: the form, and what it comes to. Pure."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from html import escape
from typing import Any

from heliostat.errors import Invalid

FIELDS = ("gpus", "cpus", "memory", "time", "project", "environment")
_LONGEST = 200
_LABELS = {
    "gpus": ("GPUs", "0, 1, 2, or a part of one: 0.5"),
    "cpus": ("CPUs", "empty: a fair part of the machine"),
    "memory": ("Memory", "16G; empty: a fair part of the machine"),
    "time": ("Time", "4h, 1d12h; after it the server ends"),
    "project": ("Project", "empty: your own"),
    "environment": ("Software", ""),
}


def render_form(fields: Sequence[str], defaults: Mapping[str, Any], environments: Collection[str]) -> str:
    """The inside of the hub's form; empty when there is nothing to choose."""
    shown = [name for name in fields if name != "environment" or environments]
    return "\n".join(_row(name, str(defaults.get(name, "")), environments) for name in shown)


def read_form(sent: Mapping[str, Sequence[str]], fields: Collection[str]) -> dict[str, str]:
    """What was filled in; what the hub itself puts into the form is not ours."""
    texts = {name: sent[name][0].strip() for name in fields if sent.get(name)}
    return {name: text for name, text in texts.items() if text}


def parse_user_options(
    asked: Mapping[str, Any], fields: Collection[str], environments: Mapping[str, Any]
) -> dict[str, Any]:
    """As fields of a job. Raises Invalid: people can send anything, also without the form."""
    for name in asked:
        if name not in fields:
            can = ", ".join(fields) or "nothing"
            raise _wrong(str(name)[:_LONGEST], "cannot be asked for here", f"This hub lets you choose: {can}.")
    read = {name: _READ[name](name, value) for name, value in asked.items() if value not in (None, "")}
    if "environment" not in read:
        return read
    if read["environment"] not in environments:
        raise _wrong("environment", "is none of those offered", f"Choose one of: {', '.join(environments)}.")
    return read | {"environment": environments[read["environment"]]}


def _row(name: str, value: str, environments: Collection[str]) -> str:
    label, hint = _LABELS[name]
    if name == "environment":
        options = "".join(f"<option>{escape(one)}</option>" for one in ("", *environments))
        field = f'<select class="form-control" id="{name}" name="{name}">{options}</select>'
    else:
        words = f'placeholder="{escape(hint)}" value="{escape(value)}"'
        field = f'<input class="form-control" id="{name}" name="{name}" maxlength="{_LONGEST}" {words}>'
    return f'<div class="form-group mb-3"><label for="{name}">{label}</label>{field}</div>'


def _number(name: str, value: Any) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise _wrong(name, "must be a number, not below 0")
    return int(number) if number.is_integer() else number


def _count(name: str, value: Any) -> int:
    number = _number(name, value)
    if not isinstance(number, int) or number < 1:
        raise _wrong(name, "must be a whole number, at least 1")
    return number


def _text(name: str, value: Any) -> str:
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text or len(text) > _LONGEST or not text.isprintable():
        raise _wrong(name, f"must be a text of at most {_LONGEST} characters")
    return text


_READ: Mapping[str, Callable[[str, Any], Any]] = {
    "gpus": _number,
    "cpus": _count,
    "memory": _text,
    "time": _text,
    "project": _text,
    "environment": _text,
}


def _wrong(name: str, what: str, hint: str | None = None) -> Invalid:
    return Invalid(f"{name} {what}.", hint, fields={name: what})
