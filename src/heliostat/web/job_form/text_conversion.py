"""Conversion between texts of form fields and an API body."""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from heliostat.models.quantities import parse_duration
from heliostat.web.job_form.fields import DEFAULT_TEXTS, FORM_FIELDS, FORM_ONLY_FIELDS, InputKind
from heliostat.web.job_form.request_to_body import JobBodyDict, duration_text

FieldTexts = dict[str, str]
FieldErrors = dict[str, str]
"""Error messages by field."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,15}")
_DIGEST = re.compile(r"[0-9a-f]{8,64}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})")


def texts_to_body(texts: Mapping[str, str]) -> tuple[JobBodyDict, FieldErrors]:
    """Empty fields are omitted; text that is not a number stays text, which the API then rejects."""
    body: JobBodyDict = {}
    problems: FieldErrors = {}
    for name, field in FORM_FIELDS.items():
        if name in FORM_ONLY_FIELDS:
            continue
        try:
            value = _command(texts) if name == "command" else _KINDS[field.kind].read(texts.get(name, ""))
        except ValueError as error:
            problems[name] = str(error)
            continue
        if value is not None:
            body[name] = value
    return body, problems


def body_to_texts(body: Mapping[str, object]) -> FieldTexts:
    """All fields of the form, also for an invalid body; missing fields get their default."""
    texts = dict(DEFAULT_TEXTS)
    for name, value in body.items():
        if name in FORM_FIELDS and name not in FORM_ONLY_FIELDS and value is not None:
            texts[name] = value_to_text(name, value)
    is_words = isinstance(body.get("command"), list) and body.get("script") is None
    texts["command_kind"] = "words" if is_words else "shell"
    return texts


def value_to_text(name: str, value: object) -> str:
    """One field of a body as form text; None: the default."""
    if value is None:
        return DEFAULT_TEXTS[name]
    if name == "command" and isinstance(value, list):
        return shlex.join(_as_text(word) for word in value)
    return _KINDS[FORM_FIELDS[name].kind].write(value)


def _command(texts: Mapping[str, str]) -> str | list[str] | None:
    text = texts.get("command", "")
    has_script = bool(texts.get("script", "").strip())
    if has_script or texts.get("command_kind") == "words":
        return _words(text) or None
    return text if text.strip() else None


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        raise ValueError("has an unclosed quotation mark") from None


def _line(text: str) -> str | None:
    return text.strip() or None


def _text(text: str) -> str | None:
    return text if text.strip() else None


def _whole(text: str) -> int | str | None:
    text = text.strip()
    return int(text) if _WHOLE.fullmatch(text) else text or None


def _number(text: str) -> float | str | None:
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return text or None
    return int(text) if _WHOLE.fullmatch(text) else float(text)


def _seconds(text: str) -> float | str | None:
    value = _number(text)
    has_no_unit = isinstance(value, int) and value > 0
    return float(parse_duration(text)) if isinstance(value, str) or has_no_unit else value


def _flag(text: str) -> bool | None:
    return True if text.strip() else None


def _labels(text: str) -> list[str] | None:
    return [label for label in re.split(r"[\s,]+", text) if label] or None


def _lines(text: str) -> list[str] | None:
    return [line.strip() for line in text.split("\n") if line.strip()] or None


def _variables(text: str) -> dict[str, str] | None:
    variables: dict[str, str] = {}
    for line in text.split("\n"):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        name = name.strip()
        if not equals:
            raise ValueError(f"must have one NAME=value per line: {line[:40]!a} has no =")
        if name in variables:
            raise ValueError(f"{name[:60]} is set twice")
        variables[name] = _unquoted(value)
    return variables or None


def _software(text: str) -> object:
    """A digest, lines of requirements, or a JSON object of the API."""
    bare = text.strip()
    if not bare or _DIGEST.fullmatch(bare):
        return bare or None
    if not bare.startswith("{"):
        return {"requirements": text}
    try:
        return json.loads(bare)
    except (ValueError, RecursionError):
        raise ValueError("is not valid JSON: fix it, or write one package per line") from None


def _software_text(value: object) -> str:
    text = value["requirements"] if isinstance(value, dict) and list(value) == ["requirements"] else None
    if isinstance(text, str) and text.strip()[:1] not in ("", "{") and not _DIGEST.fullmatch(text.strip()):
        return text
    return _as_text(value)


def _unquoted(value: str) -> str:
    """Unchanged, or in double quotes a JSON string, for values with line breaks."""
    if not value.startswith('"'):
        return value
    try:
        read = json.loads(value)
    except ValueError:
        return value
    return read if isinstance(read, str) else value


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, int | str):
        return str(value)
    return json.dumps(value, default=str)


def _seconds_text(value: object) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return duration_text(value) if is_number and 0 < value < 10**9 else _as_text(value)  # type: ignore[arg-type,operator]


def _labels_text(value: object) -> str:
    return ", ".join(map(_as_text, value)) if isinstance(value, list) else _as_text(value)


def _lines_text(value: object) -> str:
    return "\n".join(map(_as_text, value)) if isinstance(value, list) else _as_text(value)


def _variables_text(value: object) -> str:
    if not isinstance(value, dict):
        return _as_text(value)
    return "\n".join(f"{name}={_quoted(_as_text(text))}" for name, text in value.items())


def _quoted(value: str) -> str:
    return value if value.isprintable() and not value.startswith('"') else json.dumps(value)


@dataclass(frozen=True, slots=True)
class _Converter:
    read: Callable[[str], object]  # None: the default of the server; raises ValueError with a message
    write: Callable[[object], str] = _as_text


_KINDS: dict[InputKind, _Converter] = {
    "line": _Converter(_line),
    "choice": _Converter(_line),
    "text": _Converter(_text),
    "whole": _Converter(_whole),
    "number": _Converter(_number),
    "seconds": _Converter(_seconds, _seconds_text),
    "flag": _Converter(_flag),
    "labels": _Converter(_labels, _labels_text),
    "lines": _Converter(_lines, _lines_text),
    "variables": _Converter(_variables, _variables_text),
    "software": _Converter(_software, _software_text),
}
