"""Repeating intervals of ISO 8601: `R5/2026-07-22T12:00:00Z/P1M`.

Years, months, weeks and days follow local time, so that a daily schedule at noon stays at noon; hours, minutes and
seconds are exact. The n-th time is computed from the first: after 31 January comes 28 February, then 31 March.
"""

import calendar
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from heliostat.schedules.time_zones import find_zone, local_to_utc

LATEST_TIME = datetime(2200, 1, 1, tzinfo=UTC)
"""No times are computed after this."""

_MAX_CHARACTERS = 200
_PERIOD = re.compile(
    r"P(?:(\d{1,4})Y)?(?:(\d{1,4})M)?(?:(\d{1,4})W)?(?:(\d{1,5})D)?"
    r"(T(?:(\d{1,6})H)?(?:(\d{1,8})M)?(?:(\d{1,9})(?:\.0+)?S)?)?",
    re.ASCII,
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_EXAMPLE = "write R/2026-07-22T12:00:00Z/PT24H, R5//P1M, or a cron line such as 0 9 * * 1-5"


@dataclass(frozen=True, slots=True)
class CalendarPeriod:
    """Months and days are those of the calendar, seconds are exact."""

    months: int = 0
    days: int = 0
    seconds: int = 0

    @property
    def minimum_seconds(self) -> int:
        """Lower bound of its length: February has 28 days, and clocks change by at most a day."""
        whole_days = self.months * 28 + self.days
        return max(1, whole_days * 86400 - (86400 if whole_days else 0) + self.seconds)

    @property
    def typical_seconds(self) -> float:
        return self.months * 365.2425 / 12 * 86400 + self.days * 86400 + self.seconds


@dataclass(frozen=True, slots=True)
class RepeatingInterval:
    repetitions: int | None  # None: without end
    starts_at: datetime
    period: CalendarPeriod
    zone: str = "UTC"

    def __str__(self) -> str:
        """In the format of `parse_interval`."""
        times = "" if self.repetitions is None else str(self.repetitions)
        return f"R{times}/{self.starts_at:%Y-%m-%dT%H:%M:%S}Z/{format_period(self.period)}"

    def next_after(self, moment: datetime) -> datetime | None:
        """The first time after this."""
        if (index := self._later_than(moment)) >= self._count:
            return None
        result = self._at(index)
        return result if result < LATEST_TIME else None

    def times_between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """All times after `after` up to `until`, in order, each once."""
        last = after
        indexes = range(self._later_than(after), self._count)
        for result in takewhile(lambda value: value <= until, map(self._at, indexes)):
            if result > last:  # if a time zone skips a whole day, two times are equal
                yield result
                last = result

    @property
    def typical_seconds(self) -> float:
        return self.period.typical_seconds

    @property
    def _count(self) -> int:
        """Upper bound of the number of times before LATEST_TIME."""
        most = max(0, int((LATEST_TIME - self.starts_at).total_seconds()) // self.period.minimum_seconds + 2)
        return most if self.repetitions is None else min(self.repetitions, most)

    def _later_than(self, moment: datetime) -> int:
        return bisect_right(range(self._count), moment, key=self._at)

    def _at(self, index: int) -> datetime:
        period, exact = self.period, timedelta(seconds=index * self.period.seconds)
        try:
            if not (period.months or period.days):
                return self.starts_at + exact
            zone = find_zone(self.zone)
            first = self.starts_at.astimezone(zone)
            local = _months_later(first.replace(tzinfo=None, fold=0), index * period.months)
            local += timedelta(days=index * period.days)
            return (self.starts_at if index == 0 else local_to_utc(local, zone)) + exact
        except (OverflowError, ValueError):
            return LATEST_TIME


def parse_interval(text: str, zone: str, now: datetime) -> RepeatingInterval:
    """`R[n]/[start]/period`, or `R[n]/period`. Without a start it begins now. Raises ValueError."""
    parts = text.strip().upper().split("/") if len(text) <= _MAX_CHARACTERS else []
    if len(parts) == 2:
        parts.insert(1, "")
    repeats = re.fullmatch(r"R(\d{0,9})", parts[0], re.ASCII) if len(parts) == 3 else None
    if repeats is None:
        raise ValueError(f"{text[:60]!a} is not a repeating interval; {_EXAMPLE}")
    times = int(repeats[1]) if repeats[1] else None
    if times == 0:
        raise ValueError("R0 never fires; write R1 for once, R for no end")
    starts_at = parse_start(parts[1], zone) if parts[1] else now.astimezone(UTC).replace(microsecond=0)
    return RepeatingInterval(times, starts_at, parse_period(parts[2]), zone)


def has_utc_start(text: str) -> bool:
    """Whether its start ends in Z."""
    return bool(re.search(r"/[^/]*Z/", text.strip().upper()))


def parse_start(text: str, zone: str) -> datetime:
    """A start without an offset is local time in this zone."""
    try:
        if not _TIME.fullmatch(text):
            raise ValueError
        start = datetime.fromisoformat(text).replace(microsecond=0)
        moment = local_to_utc(start, find_zone(zone)) if start.tzinfo is None else start.astimezone(UTC)
        is_near = 1970 <= moment.year < LATEST_TIME.year
    except (ValueError, OverflowError):
        is_near = False
    if not is_near:
        raise ValueError(f"{text[:40]!a} is not a time from 1970 to 2199; write 2026-07-22T12:00:00Z")
    return moment


def parse_period(text: str) -> CalendarPeriod:
    """`PT24H`, `P1M`, `P1DT12H`. Raises ValueError with a message for users."""
    match = _PERIOD.fullmatch(text.strip().upper()) if len(text) <= _MAX_CHARACTERS else None
    if match is None or text.strip().upper() in ("P", "PT") or match[5] == "T":
        raise ValueError(f"{text[:40]!a} is not a period; write PT24H, P1D, P1M")
    years, months, weeks, days, _, hours, minutes, seconds = (
        int(value) if value and value.isdecimal() else 0 for value in match.groups()
    )
    period = CalendarPeriod(years * 12 + months, weeks * 7 + days, hours * 3600 + minutes * 60 + seconds)
    if not period.typical_seconds:
        raise ValueError("the period must be longer than zero; write PT1H for every hour")
    if period.typical_seconds > 366 * 100 * 86400:
        raise ValueError("the period must be at most 100 years")
    return period


def format_period(period: CalendarPeriod) -> str:
    """In the format of `parse_period`."""
    date = f"{f'{period.months}M' if period.months else ''}{f'{period.days}D' if period.days else ''}"
    return f"P{date}{f'T{period.seconds}S' if period.seconds else ''}"


def _months_later(local: datetime, months: int) -> datetime:
    """On the same day, or on the last day of a shorter month."""
    if not months:
        return local
    year, month = divmod(local.year * 12 + local.month - 1 + months, 12)
    return local.replace(year=year, month=month + 1, day=min(local.day, calendar.monthrange(year, month + 1)[1]))
