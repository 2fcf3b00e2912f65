"""Parsing of trace values: numbers, times, booleans and names. Raises BadValue."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from heliostat.simulation.traces.trace import BadValue

_YES = {"1", "true", "yes"}
_NO = {"", "0", "false", "no"}
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def parse_number(column: str, text: object) -> float:
    """A finite number; booleans from JSON are rejected."""
    try:
        value = float(text) if not isinstance(text, bool) else math.nan  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise BadValue(column, f"{_quote(text)} is not a number")
    return value


def parse_whole_number(column: str, text: object) -> int:
    """Rounded up: half a core counts as one."""
    return math.ceil(parse_number(column, text))


def parse_time_seconds(column: str, text: object) -> float:
    """A number of seconds, or a timestamp such as `2017-10-03 06:24:11`, in UTC unless it has an offset."""
    if not isinstance(text, str) or _is_number(text):
        return parse_number(column, text)
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadValue(column, f"{_quote(text)} is neither seconds nor a time like 2017-10-03 06:24:11") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def parse_bool(column: str, text: object) -> bool:
    normalised = str(text).strip().lower()
    if normalised not in _YES | _NO:
        raise BadValue(column, f"{_quote(text)} is neither true nor false")
    return normalised in _YES


def parse_name(column: str, text: object) -> str:
    """Characters that could control a terminal are replaced: names go into tables and files."""
    if not isinstance(text, str | int) or not str(text).strip():
        raise BadValue(column, f"{_quote(text)} is not a name")
    return "".join(char if char.isprintable() else _REPLACEMENT for char in str(text).strip()[:128])


def is_given(values: Mapping[str, object], field: str) -> bool:
    return values.get(field) not in (None, "")


def _is_number(text: str) -> bool:
    return text.strip().replace(".", "", 1).isdecimal()


def _quote(text: object) -> str:
    return ascii(str(text)[:40])
