"""Formats durations, sizes and times for the command line."""

from datetime import UTC, datetime, timedelta

import typer


def format_duration(seconds: float | None) -> str:
    """`0.4s`, `42s`, `3m05s`, `2h07m`, `5d03h`."""
    if seconds is None:
        return "-"
    if 0 < seconds < 10:
        return f"{seconds:.1f}s".replace(".0s", "s")
    total = max(0, int(seconds))
    for size, unit, below, rest in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if total >= size:
            return f"{total // size}{unit}{total % size // below:02d}{rest}"
    return f"{total}s"


def parse_duration_option(text: str, option: str) -> float:
    """Seconds of a duration such as `2h`. Raises BadParameter for that option if it is not one."""
    from heliostat.models.quantities import parse_duration

    try:
        return float(parse_duration(text))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def format_mib(mib: float | None) -> str:
    """`512M`, `16G`, `1.5T`."""
    if mib is None:
        return "-"
    for unit, step in (("T", 2**20), ("G", 2**10)):
        if mib >= step:
            return f"{mib / step:.1f}".removesuffix(".0") + unit
    return f"{mib:.0f}M"


def format_bytes(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else format_mib(size_bytes / 2**20)


def parse_time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def format_time(text: str | None) -> str:
    """Local time; without the date if it is today."""
    at = parse_time(text)
    if at is None:
        return "-"
    local = at.astimezone()
    today = datetime.now(UTC).astimezone().date()
    return local.strftime("%H:%M:%S" if local.date() == today else "%Y-%m-%d %H:%M")


def format_time_short(text: str | None) -> str:
    """Local time; with the weekday or date if it is not today."""
    at = parse_time(text)
    if at is None:
        return "-"
    local, today = at.astimezone(), datetime.now(UTC).astimezone().date()
    if local.date() == today:
        return local.strftime("%H:%M")
    is_near = timedelta(0) < local.date() - today < timedelta(days=6)
    return local.strftime("%a %H:%M" if is_near else "%Y-%m-%d %H:%M")


def is_past(text: str) -> bool:
    at = parse_time(text)
    return at is not None and at <= datetime.now(UTC)


def seconds_between(start: str | None, end: str | None = None) -> float | None:
    """Seconds from start to end, or to now."""
    begun = parse_time(start)
    if begun is None:
        return None
    return ((parse_time(end) or datetime.now(UTC)) - begun).total_seconds()
