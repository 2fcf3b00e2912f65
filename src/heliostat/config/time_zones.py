"""Names of time zones: which are known here, and that of this machine."""

import os


def is_zone(name: str) -> bool:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def zone_of_this_machine() -> str:
    """UTC, if it cannot be told."""
    linked = os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2]
    named = (os.environ.get("TZ", "").removeprefix(":"), linked)
    return next((name for name in named if name and is_zone(name)), "UTC")
