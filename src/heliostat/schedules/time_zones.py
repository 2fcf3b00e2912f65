"""Clocks on the wall: which moment a date and time of a zone is, also when clocks are put forward or back."""

from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_LONGEST = 64


@lru_cache(maxsize=512)
def find_zone(name: str) -> tzinfo:
    """`Europe/Berlin`. Raises ValueError with a sentence."""
    try:
        if not name or len(name) > _LONGEST:
            raise ValueError
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name[:_LONGEST]!a} is not a time zone; write Europe/Berlin, or UTC") from None


def local_to_utc(local: datetime, zone: tzinfo) -> datetime:
    """The moment at which clocks there show this. What they show twice is the first time; what they leave out is
    as much later as they are put forward."""
    return local.replace(tzinfo=zone, fold=0).astimezone(UTC)


def all_local_to_utc(local: datetime, zone: tzinfo) -> tuple[datetime, ...]:
    """All moments at which clocks there show this: one, two in autumn, none in spring."""
    both = {local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return tuple(sorted(one for one in both if one.astimezone(zone).replace(tzinfo=None, fold=0) == local))
