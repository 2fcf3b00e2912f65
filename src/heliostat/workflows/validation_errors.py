"""What is wrong with a workflow file, in words: which field, why, and what to do."""

import difflib
from collections.abc import Iterable

from heliostat.errors import Invalid

_SHOWN = 8


def invalid_field(field: str, why: str, hint: str | None = None) -> Invalid:
    return Invalid(f"{field}: {why}.", hint or "Change that part of the workflow file.", fields={field: why})


def format_value(value: object) -> str:
    """Safe to print, however odd and long it is."""
    text = value if isinstance(value, str) else str(value)[:80]
    return ascii(text if len(text) <= 64 else f"{text[:64]}...")


def format_list(names: Iterable[str]) -> str:
    """The first of them."""
    found = [name[:40] for name in names]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return (", ".join(found[:_SHOWN]) or "none") + more


def suggest_name(name: str, known: Iterable[str]) -> str:
    """`, perhaps train`, if there is one like it."""
    near = difflib.get_close_matches(name[:60], list(known)[:1000], 1)
    return f", perhaps {near[0]}" if near else ""
