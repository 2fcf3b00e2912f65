"""Rules of a setting: help, allowed values, validation and TOML format. Pure."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field
from typing import Any, get_args

REDACTED_TEXT = "(hidden)"
_METADATA = "setting"
_SECRET = re.compile(r"(^|_)(password|secret|key|token|credentials)$")
_LOGIN_IN_ADDRESS = re.compile(r"(?<=://)[^/\s]*@")


@dataclass(frozen=True, slots=True)
class Setting:
    """Help text and allowed values of a setting."""

    help: str
    minimum: float | None = None  # of every number
    maximum: float = 1e6
    choices: tuple[str, ...] = ()
    pattern: str = ""  # of the text, or of each text of a list or table
    keys: str = ""  # pattern of the keys of a table
    is_valid: Callable[[Any], bool] | None = None  # a check that no pattern can express
    example: str = ""  # the value as written in the file
    advice: str = ""  # hint for a wrong value; default: derived from the other rules
    see: str = ""  # page and heading of the documentation


def setting(default: Any, help: str, **rules: Any) -> Any:  # noqa: A002 - the plain name
    """A field of a section."""
    metadata = {_METADATA: Setting(help, **rules)}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def rules_of_setting(setting_field: "Field[Any]") -> Setting:
    rules: Setting = setting_field.metadata[_METADATA]
    return rules


def find_value_fault(setting_field: "Field[Any]", value: object) -> str | None:
    """The problem with a value; None: it is valid."""
    kind = _kind(setting_field)
    if not _is_of_kind(kind, value):
        return _describe_wrong_type(setting_field, value)
    rule = rules_of_setting(setting_field)
    if isinstance(value, Mapping):
        if wrong := [key for key, part in value.items() if not _is_valid_entry(rule, key, part)]:
            return f"has an invalid entry {wrong[0]!r}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        return None if _is_in_range(rule, value) else "is out of range"
    elif isinstance(value, list | tuple):
        if bad := [word for word in value if not _is_valid_text(rule, word)]:
            return f"has an invalid entry {bad[0]!r}"
    elif isinstance(value, str) and not _is_valid_text(rule, value):
        return "is not valid"
    return None if rule.is_valid is None or rule.is_valid(value) else "is not valid"


def advise_value(setting_field: "Field[Any]") -> str:
    """A hint with a valid value."""
    rule, kind = rules_of_setting(setting_field), _KINDS[_kind(setting_field)]
    if rule.advice:
        return rule.advice
    if rule.choices:
        return f"Choose from: {', '.join(rule.choices)}."
    if rule.minimum is not None and _kind(setting_field) in (int, float):
        return f"Write {kind} from {_number(rule.minimum)} to {_number(rule.maximum)}."
    return f"Write {setting_field.name} = {rule.example}." if rule.example else f"Write {kind}."


def describe_range(setting_field: "Field[Any]") -> str:
    """The allowed values, if they are a few choices or a range of numbers."""
    rule = rules_of_setting(setting_field)
    if rule.choices:
        return f"{'one' if _kind(setting_field) is str else 'some'} of {', '.join(rule.choices)}"
    if rule.minimum is None or _kind(setting_field) not in (int, float):
        return ""
    if rule.maximum >= 1e6:
        return f"at least {_number(rule.minimum)}" if rule.minimum else ""
    return f"from {_number(rule.minimum)} to {_number(rule.maximum)}"


def describe_type(setting_field: "Field[Any]") -> str:
    return _KINDS[_kind(setting_field)]


def redact_value(name: str, value: Any) -> Any:
    """Without secrets and without logins in URLs."""
    if value is None:
        return None
    if _SECRET.search(name):
        return REDACTED_TEXT
    if isinstance(value, Mapping):
        return {key: redact_value(key.lower(), part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return tuple(redact_value("", part) for part in value)
    return _LOGIN_IN_ADDRESS.sub("…@", value) if isinstance(value, str) else value


def format_toml(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        pairs = (f"{_key(key)} = {format_toml(part)}" for key, part in value.items())
        return f"{{ {', '.join(pairs)} }}" if value else "{}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(format_toml, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)


def _describe_wrong_type(setting_field: "Field[Any]", value: object) -> str:
    kind, default = _kind(setting_field), setting_field.default
    if kind not in (int, float) or not isinstance(value, str):
        return f"is not {_KINDS[kind]}"
    example = "" if default in (None, MISSING) else f", for example {_number(default)}"
    return f"must be {_KINDS[kind]} without quotes{example}"


def _number(value: float) -> str:
    return f"{value:.10g}"


def _kind(setting_field: "Field[Any]") -> Any:
    """The type without None."""
    return next(kind for kind in (setting_field.type, *get_args(setting_field.type)) if kind in _KINDS)


_KINDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text in quotation marks",
    tuple[str, ...]: "a list of texts",
    Mapping[str, str]: "a table of texts",
    Mapping[str, float]: "a table of numbers",
}


def _is_of_kind(kind: Any, value: object) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind in (bool, int, str):
        return type(value) is kind
    return isinstance(value, list | tuple) if kind == tuple[str, ...] else isinstance(value, dict)


def _is_in_range(rule: Setting, value: float) -> bool:
    return rule.minimum is None or rule.minimum <= value <= rule.maximum


def _is_valid_entry(rule: Setting, key: str, value: object) -> bool:
    if rule.keys and not re.fullmatch(rule.keys, key):
        return False
    if rule.minimum is None:
        return _is_valid_text(rule, value)
    return isinstance(value, int | float) and not isinstance(value, bool) and _is_in_range(rule, value)


def _is_valid_text(rule: Setting, word: object) -> bool:
    if not isinstance(word, str):
        return False
    if rule.choices:
        return word in rule.choices
    return re.fullmatch(rule.pattern or r"[^\0\n]+", word) is not None


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else json.dumps(text, ensure_ascii=False)
