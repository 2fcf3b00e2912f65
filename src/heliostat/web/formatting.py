"""Times, durations, sizes and counts as readable text."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from heliostat.models import amounts

NO_VALUE = "\N{EN DASH}"
format_count, format_noun = amounts.format_count, amounts.format_noun


def format_duration(seconds: float | None) -> str:
    """`42 s`, `3 min 5 s`, `2 h 7 min`, `5 d 3 h`."""
    if seconds is None:
        return NO_VALUE
    total = max(0, int(seconds))
    for size, unit, below, rest in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if total >= size:
            more = total % size // below
            return f"{total // size} {unit}" + (f" {more} {rest}" if more else "")
    return f"{total} s"


def format_size(mib: float | None) -> str:
    return NO_VALUE if mib is None else amounts.format_size(mib)


def format_number(value: float | None) -> str:
    return NO_VALUE if value is None else amounts.format_number(value)


def format_percent(fraction: float | None) -> str:
    return NO_VALUE if fraction is None else amounts.format_percent(fraction)


def format_hours(amount: float) -> str:
    """`0.4`, `24,434`: decimals only below 100."""
    return f"{amount:,.0f}" if amount >= 100 or not amount else f"{amount:,.1f}"


def format_iso_time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_exact_time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_short_time(at: datetime) -> str:
    """Shown in UTC unless a script converts it to local time."""
    utc = at.astimezone(UTC)
    return f"{utc.day} {utc:%b %H:%M} UTC"


def format_zoned_time(at: datetime, zone: str) -> str:
    """`Thu 19 Nov 2026, 02:00 CET`: local time of this zone, also with scripts."""
    local = at.astimezone(ZoneInfo(zone))
    return f"{local:%a} {local.day} {local:%b %Y, %H:%M}{f':{local:%S}' if local.second else ''} {local:%Z}"


def format_state(state: str) -> str:
    return str(state).replace("_", " ")


TEMPLATE_FILTERS: dict[str, Callable[..., Any]] = {
    "duration": format_duration,
    "size": format_size,
    "number": format_number,
    "percent": format_percent,
    "hours": format_hours,
    "plural": format_count,
    "noun": format_noun,
    "iso": format_iso_time,
    "exact": format_exact_time,
    "short_time": format_short_time,
    "zoned_time": format_zoned_time,
    "state_name": format_state,
}
