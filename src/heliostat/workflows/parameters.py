"""The parameters of a workflow: typed, with defaults, given by people as text."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from heliostat.workflows.expressions import Value, as_number
from heliostat.workflows.refusing import listed, shown, wrong

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
MOST = 200
_LONGEST = 10_000  # characters of one value
_TYPES = ("text", "int", "float", "bool")
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: str  # one of text, int, float, bool
    default: Value = None  # None: it must be given
    choices: tuple[Value, ...] = ()


def read_parameters(given: object) -> dict[str, Parameter]:
    """`lr: 0.1`, or `lr: {type: float, default: 0.1, choices: [0.1, 0.01]}`. Raises Invalid."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or len(given) > MOST:
        raise wrong("params", f"must be a set of at most {MOST} names, each with a default or a description")
    check_variables("params", given)
    return {name: _parameter(name, value) for name, value in ((str(key), one) for key, one in given.items())}


def check_variables(field: str, names: Iterable[object]) -> None:
    """Raises Invalid when two of them are the same variable, and one would be lost."""
    known: dict[str, str] = {}
    for name in map(str, names):
        other = known.setdefault(variable_of(name), name)
        if other != name:
            raise wrong(
                f"{field}.{name[:60]}", f"is the same variable as {other[:60]}", "Call one of them otherwise."
            )


def settle(parameters: Mapping[str, Parameter], given: Mapping[str, object]) -> dict[str, Value]:
    """The value of each: what was given, or its default. Raises Invalid."""
    for name in given:
        if name not in parameters:
            raise wrong(f"params.{name[:60]}", f"there is no such parameter; there are {listed(parameters)}")
    return {name: _value(one, given.get(name, one.default)) for name, one in parameters.items()}


def variable_of(name: str) -> str:
    """The environment variable a job finds its value in."""
    return f"HELIOSTAT_PARAM_{name.upper()}"


def _parameter(name: str, given: object) -> Parameter:
    field = f"params.{name[:60]}"
    if NAME.fullmatch(name) is None:
        raise wrong(field, "a name has letters, digits and _, and begins with no digit")
    if not isinstance(given, Mapping):
        plain = _plain(field, given)
        return Parameter(name, _type_of(plain), plain)
    if unknown := set(map(str, given)) - {"type", "default", "choices"}:
        raise wrong(f"{field}.{min(unknown)[:60]}", "there is no such field; there are type, default and choices")
    kind = given.get("type", _type_of(given.get("default")))
    if kind not in _TYPES:
        raise wrong(f"{field}.type", f"must be one of {', '.join(_TYPES)}")
    choices = given.get("choices", [])
    if not isinstance(choices, list) or len(choices) > 1000:
        raise wrong(f"{field}.choices", "must be a list of at most 1000 values")
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
        raise wrong(field, "has no default and was not given", f"Give it one: --param {one.name}=VALUE.")
    value = _converted(one, _plain(field, given))
    if value is None:
        hint = "Give a whole number, with all its digits." if one.type == "int" else None
        raise wrong(field, f"{shown(given)} is not of the type {one.type}", hint)
    if one.choices and value not in one.choices:
        raise wrong(field, f"must be one of {listed(map(str, one.choices))}")
    return value


def _plain(field: str, value: object) -> str | float | int | bool:
    if not isinstance(value, str | int | float) or (isinstance(value, str) and len(value) > _LONGEST):
        raise wrong(field, f"must be a number, true, false, or text of at most {_LONGEST} characters")
    if isinstance(value, str) and "\0" in value:
        raise wrong(field, "must not contain a NUL character")
    if isinstance(value, int | float) and not isinstance(value, bool) and as_number(value) is None:
        raise wrong(field, "must be a finite number")
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
