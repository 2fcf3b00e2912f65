"""Times are seconds since 1970 in the database and aware UTC everywhere else."""

from datetime import UTC, datetime
from typing import overload


@overload
def to_time(seconds: float) -> datetime: ...
@overload
def to_time(seconds: None) -> None: ...
@overload
def to_time(seconds: float | None) -> datetime | None: ...
def to_time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


@overload
def to_seconds(time: datetime) -> float: ...
@overload
def to_seconds(time: None) -> None: ...
@overload
def to_seconds(time: datetime | None) -> float | None: ...
def to_seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()
