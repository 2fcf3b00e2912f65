"""Reservations of nodes or GPUs for a time: a course on Thursday, a deadline week, maintenance."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

MAX_RESERVATION_WEEKS = 60
_WEEK = timedelta(weeks=1)
_Times = tuple[datetime, datetime]  # start, end


@dataclass(frozen=True, slots=True)
class Reservation:
    """For a project; without one, a maintenance window in which no job runs."""

    name: str
    nodes: tuple[str, ...]
    starts_at: datetime
    ends_at: datetime
    project: str | None = None
    gpus_per_node: int | None = None  # None: whole nodes
    weeks: int = 1  # number of weekly occurrences
    reason: str = ""
    time_zone: str = "UTC"  # in which each occurrence has the same time of day

    @property
    def final_end_at(self) -> datetime:
        """End of its last occurrence."""
        return self._times()[-1][1]

    def occurrences(self, after: datetime) -> Iterator[_Times]:
        """Start and end of each occurrence that ends after this time, in order."""
        return ((starts_at, ends_at) for starts_at, ends_at in self._times() if ends_at > after)

    def overlaps(self, other: "Reservation") -> bool:
        """Whether both are active at some time."""
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
    """Cached: every plan needs it, and time zone arithmetic is slow."""
    times = []
    for week in range(max(weeks, 1)):
        begin, end = (_same_time(moment, week, _zone(zone)) for moment in (starts_at, ends_at))
        times.append((begin, end if end > begin else begin + (ends_at - starts_at)))
    return tuple(times)


def _same_time(moment: datetime, week: int, zone: tzinfo) -> datetime:
    """The same local time a number of weeks later. A time that is skipped in spring moves one hour later."""
    if week == 0:
        return moment
    local = moment.astimezone(zone)
    return (local + week * _WEEK).astimezone(UTC)


def _zone(name: str) -> tzinfo:
    """UTC, if the zone is unknown on this machine: the queue must not stop."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC
