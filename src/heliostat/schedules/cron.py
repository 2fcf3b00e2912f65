"""Cron schedules with five fields, with the semantics of Debian's cron.

A schedule with a fixed hour and minute fires once per day: right after the gap if daylight saving time skips the
time, and the first time if it occurs twice. A schedule with a star there (`*/5 * * * *`) fires whenever the local
time matches.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise

from heliostat.schedules.iso8601 import LATEST_TIME
from heliostat.schedules.time_zones import all_local_to_utc, find_zone, local_to_utc

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_DAY = timedelta(days=1)
_NEAR_MIDNIGHT = timedelta(hours=3)  # a clock change this close to midnight may affect two days
_MAX_DAYS = 41 * 366  # 29 February falls on each day of the week within 40 years
_MAX_CHARACTERS = 200
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()

    def parse(self, text: str) -> frozenset[int]:
        return frozenset(value for part in text.split(",") for value in self._part(part))

    def _part(self, text: str) -> range:
        span, slash, step = text.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            low, high = self.least, self.most
        else:
            low = self._number(first, text)
            high = self._number(last, text) if dash else (self.most if slash else low)
        width = int(step) if re.fullmatch(r"[0-9]{1,4}", step) else 1 if not slash else 0
        if high < low or width == 0:
            raise ValueError(f"{self.name}: {text[:40]!a} is not valid; write 5, 1-5, */10 or 1,3,5")
        return range(low, high + 1, width)

    def _number(self, text: str, whole: str) -> int:
        if text in self.names:
            return self.names.index(text) + self.least
        if re.fullmatch(r"[0-9]{1,4}", text) and self.least <= int(text) <= self.most:
            return int(text)
        raise ValueError(f"{self.name}: {whole[:40]!a} is not in the range {self.least} to {self.most}")


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _WEEKDAYS),
)


@dataclass(frozen=True, slots=True)
class CronSchedule:
    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    needs_both_days: bool  # day of the month and day of the week must both match; else one is enough
    has_fixed_time: bool  # hour and minute have no star
    zone: str = "UTC"

    def __str__(self) -> str:
        return self.text

    def next_after(self, moment: datetime) -> datetime | None:
        """The first time after this; None: none within 40 years."""
        zone = find_zone(self.zone)
        day = moment.astimezone(zone).date() - _DAY  # a skipped time may fall on the next day
        for _ in range(_MAX_DAYS):
            if self.matches_day(day) and (result := self._first_on(day, moment, zone)) is not None:
                return result if result < LATEST_TIME else None
            day += _DAY
        return None

    def times_between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """All times after `after` up to `until`, in order, each once."""
        result = self.next_after(after)
        while result is not None and result <= until:
            yield result
            result = self.next_after(result)

    @property
    def typical_seconds(self) -> float:
        """The shortest interval between two times of one day; a day if there is only one."""
        times = [hour * 60 + minute for hour in self.hours for minute in self.minutes]
        cyclic = [*times, times[0] + 1440]
        return 60.0 * min(later - earlier for earlier, later in pairwise(cyclic))

    def matches_day(self, day: date) -> bool:
        """Whether it fires on this day."""
        if day.month not in self.months:
            return False
        by_month, by_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_month and by_week if self.needs_both_days else by_month or by_week

    def _first_on(self, day: date, moment: datetime, zone: tzinfo) -> datetime | None:
        midnight = datetime.combine(day, time())
        begins, ends = (local_to_utc(local, zone) for local in (midnight, midnight + _DAY))
        if ends - begins == _DAY and _offset(begins - _NEAR_MIDNIGHT, zone) == _offset(
            ends + _NEAR_MIDNIGHT, zone
        ):
            return self._first_on_regular_day(midnight, moment - begins, begins)
        times = _times_near_clock_change(self, midnight)
        at = bisect_right(times, moment)
        return times[at] if at < len(times) else None

    def _first_on_regular_day(self, midnight: datetime, passed: timedelta, begins: datetime) -> datetime | None:
        seconds = passed.total_seconds()
        for hour in self.hours:
            if (hour + 1) * 3600 <= seconds:
                continue
            for minute in self.minutes:
                if hour * 3600 + minute * 60 > seconds:
                    return begins + timedelta(hours=hour, minutes=minute)
        return None

    def firing_times(self, local: datetime, zone: tzinfo) -> tuple[datetime, ...]:
        """The times at which it fires for this local time."""
        result = all_local_to_utc(local, zone)
        if not self.has_fixed_time:
            return result
        while not result:  # skipped by daylight saving time: right after the gap
            local += timedelta(minutes=1)
            result = all_local_to_utc(local, zone)
        return result[:1]


def _offset(moment: datetime, zone: tzinfo) -> timedelta | None:
    return moment.astimezone(zone).utcoffset()


@lru_cache(maxsize=256)
def _times_near_clock_change(cron: CronSchedule, midnight: datetime) -> tuple[datetime, ...]:
    """All its times on a day with a clock change nearby and on the days beside it: with a change at midnight, the
    end of one day may come after the beginning of the next. Cached, because it is slow."""
    zone = find_zone(cron.zone)
    days = [day for day in (midnight - _DAY, midnight, midnight + _DAY) if cron.matches_day(day.date())]
    times = [(hour, minute) for hour in cron.hours for minute in cron.minutes]
    shown = [day.replace(hour=hour, minute=minute) for day in days for hour, minute in times]
    return tuple(sorted({fired_at for local in shown for fired_at in cron.firing_times(local, zone)}))


@lru_cache(maxsize=4096)
def parse_cron(text: str, zone: str) -> CronSchedule:
    """`0 9 * * MON-FRI`, `@daily`. Raises ValueError with a message for users."""
    line = " ".join(text.split()) if len(text) <= _MAX_CHARACTERS else ""
    words = NICKNAMES.get(line.lower(), line).upper().split()
    if len(words) != len(_FIELDS):
        raise ValueError(
            f"{text[:60]!a} is not a cron line; write five fields: minute, hour, day, month, day of the week"
        )
    minutes, hours, days, months, weekdays = (
        field.parse(word) for field, word in zip(_FIELDS, words, strict=True)
    )
    find_zone(zone)
    result = CronSchedule(
        text=line,
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=days,
        months=months,
        weekdays=frozenset(day % 7 for day in weekdays),
        needs_both_days=words[2].startswith("*") or words[4].startswith("*"),
        has_fixed_time=not (words[0].startswith("*") or words[1].startswith("*")),
        zone=zone,
    )
    if result.next_after(datetime(2024, 1, 1, tzinfo=UTC)) is None:
        raise ValueError(f"{line[:60]!a} never fires: no such date exists")
    return result
