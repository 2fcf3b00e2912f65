"""Conversion of times: seconds since 1970 in the database, aware UTC everywhere else."""

from datetime import UTC, datetime
from typing import overload


@overload
def to_datetime(seconds: float) -> datetime: ...
@overload
def to_datetime(seconds: None) -> None: ...
@overload
def to_datetime(seconds: float | None) -> datetime | None: ...
def to_datetime(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


@overload
def to_timestamp(time: datetime) -> float: ...
@overload
def to_timestamp(time: None) -> None: ...
@overload
def to_timestamp(time: datetime | None) -> float | None: ...
def to_timestamp(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()
