"""Time zones: conversion of local time to UTC, also around daylight saving time."""

from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_MAX_CHARACTERS = 64


@lru_cache(maxsize=512)
def find_zone(name: str) -> tzinfo:
    """`Europe/Berlin`. Raises ValueError with a message for users."""
    try:
        if not name or len(name) > _MAX_CHARACTERS:
            raise ValueError
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name[:_MAX_CHARACTERS]!a} is not a time zone; write Europe/Berlin, or UTC") from None


def local_to_utc(local: datetime, zone: tzinfo) -> datetime:
    """The first one if the local time occurs twice; shifted by the size of the gap if it is skipped."""
    return local.replace(tzinfo=zone, fold=0).astimezone(UTC)


def all_local_to_utc(local: datetime, zone: tzinfo) -> tuple[datetime, ...]:
    """All UTC times with this local time: usually one; two or none around daylight saving time."""
    candidates = {local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return tuple(
        sorted(moment for moment in candidates if moment.astimezone(zone).replace(tzinfo=None, fold=0) == local)
    )
