"""The parameters of a workflow: typed, with defaults, given by people as text."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from heliostat.workflows.expressions import Value, as_number
from heliostat.workflows.validation_errors import format_list, format_value, invalid_field

NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
MAX_PARAMETERS = 200
_LONGEST = 10_000  # characters of one value
_TYPES = ("text", "int", "float", "bool")
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: str  # one of text, int, float, bool
    default: Value = None  # None: it must be given
    choices: tuple[Value, ...] = ()


def parse_parameters(given: object) -> dict[str, Parameter]:
    """`lr: 0.1`, or `lr: {type: float, default: 0.1, choices: [0.1, 0.01]}`. Raises Invalid."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or len(given) > MAX_PARAMETERS:
        raise invalid_field(
            "params", f"must be a set of at most {MAX_PARAMETERS} names, each with a default or a description"
        )
    check_unique_variables("params", given)
    return {name: _parameter(name, value) for name, value in ((str(key), one) for key, one in given.items())}


def check_unique_variables(field: str, names: Iterable[object]) -> None:
    """Raises Invalid when two of them are the same variable, and one would be lost."""
    known: dict[str, str] = {}
    for name in map(str, names):
        other = known.setdefault(environment_variable(name), name)
        if other != name:
            raise invalid_field(
                f"{field}.{name[:60]}", f"is the same variable as {other[:60]}", "Call one of them otherwise."
            )


def resolve_parameters(parameters: Mapping[str, Parameter], given: Mapping[str, object]) -> dict[str, Value]:
    """The value of each: what was given, or its default. Raises Invalid."""
    for name in given:
        if name not in parameters:
            raise invalid_field(
                f"params.{name[:60]}", f"there is no such parameter; there are {format_list(parameters)}"
            )
    return {name: _value(one, given.get(name, one.default)) for name, one in parameters.items()}


def environment_variable(name: str) -> str:
    """The environment variable a job finds its value in."""
    return f"HELIOSTAT_PARAM_{name.upper()}"


def _parameter(name: str, given: object) -> Parameter:
    field = f"params.{name[:60]}"
    if NAME_PATTERN.fullmatch(name) is None:
        raise invalid_field(field, "a name has letters, digits and _, and begins with no digit")
    if not isinstance(given, Mapping):
        plain = _plain(field, given)
        return Parameter(name, _type_of(plain), plain)
    if unknown := set(map(str, given)) - {"type", "default", "choices"}:
        raise invalid_field(
            f"{field}.{min(unknown)[:60]}", "there is no such field; there are type, default and choices"
        )
    kind = given.get("type", _type_of(given.get("default")))
    if kind not in _TYPES:
        raise invalid_field(f"{field}.type", f"must be one of {', '.join(_TYPES)}")
    choices = given.get("choices", [])
    if not isinstance(choices, list) or len(choices) > 1000:
        raise invalid_field(f"{field}.choices", "must be a list of at most 1000 values")
    bare = Parameter(name, str(kind))
    allowed = tuple(_value(bare, one) for one in choices)
    default = None if given.get("default") is None else _value(bare, given["default"])
    return Parameter(name, str(kind), default, allowed)


def _type_of(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    return "int" if isinstance(value, int) else "float" if isinstance(value, float) else "text"


def _value(one: Parameter, given: object) -> Value:
    field = f"params.{one.name}"
    if given is None:
        raise invalid_field(field, "has no default and was not given", f"Give it one: --param {one.name}=VALUE.")
    value = _converted(one, _plain(field, given))
    if value is None:
        hint = "Give a whole number, with all its digits." if one.type == "int" else None
        raise invalid_field(field, f"{format_value(given)} is not of the type {one.type}", hint)
    if one.choices and value not in one.choices:
        raise invalid_field(field, f"must be one of {format_list(map(str, one.choices))}")
    return value


def _plain(field: str, value: object) -> str | float | int | bool:
    if not isinstance(value, str | int | float) or (isinstance(value, str) and len(value) > _LONGEST):
        raise invalid_field(field, f"must be a number, true, false, or text of at most {_LONGEST} characters")
    if isinstance(value, str) and "\0" in value:
        raise invalid_field(field, "must not contain a NUL character")
    if isinstance(value, int | float) and not isinstance(value, bool) and as_number(value) is None:
        raise invalid_field(field, "must be a finite number")
    return value


def _converted(one: Parameter, value: str | float | bool) -> Value:
    """None: it cannot be."""
    if one.type == "text":
        return ("true" if value else "false") if isinstance(value, bool) else str(value)
    if one.type == "bool":
        return value if isinstance(value, bool) else _TRUTHS.get(str(value).strip().lower())
    number = as_number(value)
    if number is None or (one.type == "int" and not _is_whole(number)):
        return None
    return int(number) if one.type == "int" else float(number)


def _is_whole(number: float | int) -> bool:
    """Beyond that, a number with a point or an exponent may be another than the one that was written."""
    return isinstance(number, int) or (number == int(number) and abs(number) < 2**53)
