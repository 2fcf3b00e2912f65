"""Types of times in requests: with a time zone in bodies, UTC without one in queries."""

from datetime import UTC, date, datetime
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

_MAX_TIME_LENGTH = 40  # characters


def _require_zone(value: object) -> datetime:
    """Requires a time zone, so that a time is unambiguous for all users."""
    if not isinstance(value, str) or len(value) > _MAX_TIME_LENGTH:
        raise ValueError("must be a time as text: 2026-12-03T09:00:00+01:00")
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("is not a time in ISO 8601; write 2026-12-03T09:00:00+01:00") from None
    if at.tzinfo is None:
        raise ValueError("has no time zone; write 2026-12-03T09:00:00+01:00, or Z at its end for UTC")
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError("is too far away") from None


ZonedTime = Annotated[
    datetime,
    BeforeValidator(_require_zone),
    Field(description="ISO 8601 with a time zone."),
]


def _iso_text(value: object) -> object:
    """A number would be read as seconds since 1970."""
    if isinstance(value, str) and value.lstrip("+-").replace(".", "", 1).isdecimal():
        raise ValueError("must be a date or a time: 2026-12-01, 2026-12-01T08:00Z")
    return value


def _utc_if_naive(at: datetime | None) -> datetime | None:
    return at.replace(tzinfo=UTC) if at is not None and at.tzinfo is None else at


TimeParam = Annotated[datetime | None, BeforeValidator(_iso_text), AfterValidator(_utc_if_naive)]
"""A query parameter; without a zone it is UTC."""

DayParam = Annotated[date | None, BeforeValidator(_iso_text)]
"""A query parameter: a date."""
