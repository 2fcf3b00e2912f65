"""Workflow parameters: types, defaults, choices, and values given by users."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from heliostat.workflows.expressions import Value, as_number
from heliostat.workflows.validation_errors import format_list, format_value, invalid_field

NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
MAX_PARAMETERS = 200
_MAX_CHARACTERS = 10_000  # of one value
_TYPES = ("text", "int", "float", "bool")
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: str  # one of text, int, float, bool
    default: Value = None  # None: required
    choices: tuple[Value, ...] = ()


def parse_parameters(given: object) -> dict[str, Parameter]:
    """`lr: 0.1`, or `lr: {type: float, default: 0.1, choices: [0.1, 0.01]}`. Raises Invalid."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or len(given) > MAX_PARAMETERS:
        raise invalid_field(
            "params", f"must be a mapping of at most {MAX_PARAMETERS} names, each with a default or a description"
        )
    check_unique_variables("params", given)
    return {
        name: _parameter(name, given_value)
        for name, given_value in ((str(key), value) for key, value in given.items())
    }


def check_unique_variables(field: str, names: Iterable[object]) -> None:
    """Raises Invalid if two names give the same environment variable."""
    known: dict[str, str] = {}
    for name in map(str, names):
        other = known.setdefault(environment_variable(name), name)
        if other != name:
            raise invalid_field(
                f"{field}.{name[:60]}",
                f"gives the same environment variable as {other[:60]}",
                "Rename one of them.",
            )


def resolve_parameters(parameters: Mapping[str, Parameter], given: Mapping[str, object]) -> dict[str, Value]:
    """The given value of each parameter, or its default. Raises Invalid."""
    for name in given:
        if name not in parameters:
            raise invalid_field(
                f"params.{name[:60]}", f"unknown parameter; known parameters: {format_list(parameters)}"
            )
    return {name: _value(parameter, given.get(name, parameter.default)) for name, parameter in parameters.items()}


def environment_variable(name: str) -> str:
    """The environment variable that contains the value in a job."""
    return f"HELIOSTAT_PARAM_{name.upper()}"


def _parameter(name: str, given: object) -> Parameter:
    field = f"params.{name[:60]}"
    if NAME_PATTERN.fullmatch(name) is None:
        raise invalid_field(field, "a name consists of letters, digits and _, and does not begin with a digit")
    if not isinstance(given, Mapping):
        plain = _plain(field, given)
        return Parameter(name, _type_of(plain), plain)
    if unknown := set(map(str, given)) - {"type", "default", "choices"}:
        raise invalid_field(f"{field}.{min(unknown)[:60]}", "unknown field; known fields: type, default, choices")
    type_name = given.get("type", _type_of(given.get("default")))
    if type_name not in _TYPES:
        raise invalid_field(f"{field}.type", f"must be one of {', '.join(_TYPES)}")
    choices = given.get("choices", [])
    if not isinstance(choices, list) or len(choices) > 1000:
        raise invalid_field(f"{field}.choices", "must be a list of at most 1000 values")
    untyped = Parameter(name, str(type_name))
    allowed = tuple(_value(untyped, choice) for choice in choices)
    default = None if given.get("default") is None else _value(untyped, given["default"])
    return Parameter(name, str(type_name), default, allowed)


def _type_of(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    return "int" if isinstance(value, int) else "float" if isinstance(value, float) else "text"


def _value(parameter: Parameter, given: object) -> Value:
    field = f"params.{parameter.name}"
    if given is None:
        raise invalid_field(field, "is required", f"Add --param {parameter.name}=VALUE.")
    value = _converted(parameter, _plain(field, given))
    if value is None:
        hint = "Write a whole number with all its digits." if parameter.type == "int" else None
        raise invalid_field(field, f"{format_value(given)} is not of type {parameter.type}", hint)
    if parameter.choices and value not in parameter.choices:
        raise invalid_field(field, f"must be one of {format_list(map(str, parameter.choices))}")
    return value


def _plain(field: str, value: object) -> str | float | int | bool:
    if not isinstance(value, str | int | float) or (isinstance(value, str) and len(value) > _MAX_CHARACTERS):
        raise invalid_field(
            field, f"must be a number, true, false, or text of at most {_MAX_CHARACTERS} characters"
        )
    if isinstance(value, str) and "\0" in value:
        raise invalid_field(field, "must not contain a NUL character")
    if isinstance(value, int | float) and not isinstance(value, bool) and as_number(value) is None:
        raise invalid_field(field, "must be a finite number")
    return value


def _converted(parameter: Parameter, value: str | float | bool) -> Value:
    """None: not of this type."""
    if parameter.type == "text":
        return ("true" if value else "false") if isinstance(value, bool) else str(value)
    if parameter.type == "bool":
        return value if isinstance(value, bool) else _TRUTHS.get(str(value).strip().lower())
    number = as_number(value)
    if number is None or (parameter.type == "int" and not _is_whole(number)):
        return None
    return int(number) if parameter.type == "int" else float(number)


def _is_whole(number: float | int) -> bool:
    """Floats from 2**53 on are excluded: they may differ from the number that was written."""
    return isinstance(number, int) or (number == int(number) and abs(number) < 2**53)
