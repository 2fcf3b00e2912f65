"""Nodes or devices set aside for a time: a course on Thursday, a deadline week, maintenance."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_WEEK = timedelta(weeks=1)
_Times = tuple[datetime, datetime]  # from when, to when


@dataclass(frozen=True, slots=True)
class Reservation:
    """Kept for a project; without one for nobody, which is a maintenance window."""

    name: str
    nodes: tuple[str, ...]
    starts_at: datetime
    ends_at: datetime
    project: str | None = None
    gpus_per_node: int | None = None  # None: whole nodes
    weeks: int = 1  # how many weeks in a row it takes place
    reason: str = ""
    time_zone: str = "UTC"  # in which it takes place at the same time of day every week

    @property
    def final_end_at(self) -> datetime:
        """When the last of its weeks has ended."""
        return self._times()[-1][1]

    def occurrences(self, after: datetime) -> Iterator[_Times]:
        """From when to when it holds: those not over by then, in order."""
        return ((starts_at, ends_at) for starts_at, ends_at in self._times() if ends_at > after)

    def overlaps(self, other: "Reservation") -> bool:
        """Is there a moment at which both hold?"""
        if self.final_end_at <= other.starts_at or other.final_end_at <= self.starts_at:
            return False
        theirs = list(other.occurrences(self.starts_at))
        return any(
            starts_at < their_end and their_start < ends_at
            for starts_at, ends_at in self.occurrences(other.starts_at)
            for their_start, their_end in theirs
        )

    def is_active_at(self, moment: datetime) -> bool:
        return any(starts_at <= moment < ends_at for starts_at, ends_at in self.occurrences(moment))

    def _times(self) -> tuple[_Times, ...]:
        return _weekly(self.starts_at, self.ends_at, self.weeks, self.time_zone)


@lru_cache(maxsize=1024)
def _weekly(starts_at: datetime, ends_at: datetime, weeks: int, zone: str) -> tuple[_Times, ...]:
    """Remembered: every plan asks, and clocks are slow to reckon with."""
    found = []
    for week in range(max(weeks, 1)):
        begin, end = (_same_time(moment, week, _zone(zone)) for moment in (starts_at, ends_at))
        found.append((begin, end if end > begin else begin + (ends_at - starts_at)))
    return tuple(found)


def _same_time(moment: datetime, week: int, zone: tzinfo) -> datetime:
    """So many weeks later, when clocks there show the same. A time that they leave out, as in spring, is taken as
    that much later."""
    if week == 0:
        return moment
    there = moment.astimezone(zone)
    return (there + week * _WEEK).astimezone(UTC)


def _zone(name: str) -> tzinfo:
    """UTC, if this machine has forgotten that zone: better an hour off than no queue."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC
