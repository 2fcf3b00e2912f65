"""Times, durations, sizes and counts as people read them."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

NOTHING = "\N{EN DASH}"


def duration(seconds: float | None) -> str:
    """`42 s`, `3 min 5 s`, `2 h 7 min`, `5 d 3 h`."""
    if seconds is None:
        return NOTHING
    total = max(0, int(seconds))
    for size, unit, below, rest in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if total >= size:
            more = total % size // below
            return f"{total // size} {unit}" + (f" {more} {rest}" if more else "")
    return f"{total} s"


def size(mib: float | None) -> str:
    """`512 MiB`, `16 GiB`, `1.5 TiB`."""
    if mib is None:
        return NOTHING
    for unit, step in (("TiB", 2**20), ("GiB", 2**10)):
        if mib >= step:
            return f"{mib / step:.1f}".removesuffix(".0") + f" {unit}"
    return f"{mib:.0f} MiB"


def number(value: float | None) -> str:
    """`12,345`; parts of a GPU as they are: `0.5`."""
    if value is None:
        return NOTHING
    return f"{value:,.2f}".rstrip("0").rstrip(".") if value != int(value) else f"{int(value):,}"


def percent(part: float | None) -> str:
    return NOTHING if part is None else f"{100 * part:.0f} %"


def hours(amount: float) -> str:
    """`0.4`, `24,434`: as exact as it matters."""
    return f"{amount:,.0f}" if amount >= 100 or not amount else f"{amount:,.1f}"


def plural(count: float, one: str, many: str = "") -> str:
    """`1 job`, `2 jobs`."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def iso(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def exact(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def short_time(at: datetime) -> str:
    """What is shown where no script turns it into the reader's own time."""
    utc = at.astimezone(UTC)
    return f"{utc.day} {utc:%b %H:%M} UTC"


def state_name(state: str) -> str:
    return str(state).replace("_", " ")


FILTERS: dict[str, Callable[..., Any]] = {
    "duration": duration,
    "size": size,
    "number": number,
    "percent": percent,
    "hours": hours,
    "plural": plural,
    "iso": iso,
    "exact": exact,
    "short_time": short_time,
    "state_name": state_name,
}
