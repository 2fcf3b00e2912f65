"""Validation errors of workflow files: field, reason and hint."""

import difflib
from collections.abc import Iterable

from heliostat.errors import Invalid

_SHOWN = 8


def invalid_field(field: str, reason: str, hint: str | None = None) -> Invalid:
    return Invalid(
        f"{field}: {reason}.", hint or "Change this field of the workflow file.", fields={field: reason}
    )


def format_value(value: object) -> str:
    """Shortened, and in ASCII, so that it is safe to print."""
    text = value if isinstance(value, str) else str(value)[:80]
    return ascii(text if len(text) <= 64 else f"{text[:64]}...")


def format_list(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    shown = [name[:40] for name in names]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return (", ".join(shown[:_SHOWN]) or "none") + more


def suggest_name(name: str, known: Iterable[str]) -> str:
    """` (did you mean train?)`, if there is a similar name."""
    matches = difflib.get_close_matches(name[:60], list(known)[:1000], 1)
    return f" (did you mean {matches[0]}?)" if matches else ""
