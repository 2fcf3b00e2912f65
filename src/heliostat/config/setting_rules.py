"""What is known of one setting beside its name, type and default; whether a value fits it, and how it is written.
Pure."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field
from typing import Any, get_args

REDACTED_TEXT = "set, not shown"
_METADATA = "setting"
_SECRET = re.compile(r"(^|_)(password|secret|key|token|credentials)$")
_LOGIN_IN_ADDRESS = re.compile(r"(?<=://)[^/\s]*@")


@dataclass(frozen=True, slots=True)
class Setting:
    """Its meaning, and the values that it takes."""

    help: str
    least: float | None = None  # of every number
    most: float = 1e6
    choices: tuple[str, ...] = ()
    pattern: str = ""  # of the text, or of each text of a list or table
    keys: str = ""  # pattern of the keys of a table
    fits: Callable[[Any], bool] | None = None  # what no pattern can say
    example: str = ""  # as it is written in the file, after the equals sign
    advice: str = ""  # what to write instead of a wrong value; made from the rest unless said
    see: str = ""  # page and heading of the documentation


def setting(default: Any, help: str, **rules: Any) -> Any:  # noqa: A002 - the word for it
    """A field of a section."""
    metadata = {_METADATA: Setting(help, **rules)}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def rules_of_setting(one: "Field[Any]") -> Setting:
    found: Setting = one.metadata[_METADATA]
    return found


def find_value_fault(one: "Field[Any]", value: object) -> str | None:
    """What is wrong with a value of the file; None: nothing."""
    kind = _kind(one)
    if not _is_of_kind(kind, value):
        return f"is not {_KINDS[kind]}"
    rule = rules_of_setting(one)
    if isinstance(value, Mapping):
        if wrong := [key for key, part in value.items() if not _fits_table(rule, key, part)]:
            return f"has an invalid entry {wrong[0]!r}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        return None if _is_in_range(rule, value) else "is out of range"
    elif isinstance(value, list | tuple):
        if bad := [word for word in value if not _fits_word(rule, word)]:
            return f"has an invalid entry {bad[0]!r}"
    elif isinstance(value, str) and not _fits_word(rule, value):
        return "is not valid"
    return None if rule.fits is None or rule.fits(value) else "is not valid"


def advise_value(one: "Field[Any]") -> str:
    """What to write."""
    rule, kind = rules_of_setting(one), _KINDS[_kind(one)]
    if rule.advice:
        return rule.advice
    if rule.choices:
        return f"Choose from: {', '.join(rule.choices)}."
    if rule.least is not None and _kind(one) in (int, float):
        return f"Write {kind} from {_number(rule.least)} to {_number(rule.most)}."
    return f"Write {one.name} = {rule.example}." if rule.example else f"Write {kind}."


def describe_range(one: "Field[Any]") -> str:
    """The values it takes, as far as they are few or between two numbers."""
    rule = rules_of_setting(one)
    if rule.choices:
        return f"{'one' if _kind(one) is str else 'some'} of {', '.join(rule.choices)}"
    if rule.least is None or _kind(one) not in (int, float):
        return ""
    if rule.most >= 1e6:
        return f"at least {_number(rule.least)}" if rule.least else ""
    return f"from {_number(rule.least)} to {_number(rule.most)}"


def describe_type(one: "Field[Any]") -> str:
    return _KINDS[_kind(one)]


def redact_value(name: str, value: Any) -> Any:
    """Without secrets, and without logins within addresses."""
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


def _number(value: float) -> str:
    return f"{value:.10g}"


def _kind(one: "Field[Any]") -> Any:
    """The type without None."""
    return next(kind for kind in (one.type, *get_args(one.type)) if kind in _KINDS)


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
    return rule.least is None or rule.least <= value <= rule.most


def _fits_table(rule: Setting, key: str, value: object) -> bool:
    if rule.keys and not re.fullmatch(rule.keys, key):
        return False
    if rule.least is None:
        return _fits_word(rule, value)
    return isinstance(value, int | float) and not isinstance(value, bool) and _is_in_range(rule, value)


def _fits_word(rule: Setting, word: object) -> bool:
    if not isinstance(word, str):
        return False
    if rule.choices:
        return word in rule.choices
    return re.fullmatch(rule.pattern or r"[^\0\n]+", word) is not None


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else json.dumps(text, ensure_ascii=False)
