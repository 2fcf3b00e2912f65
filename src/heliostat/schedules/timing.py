"""When a schedule is due: by a repeating interval or a cron line, whichever the text is."""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from heliostat.schedules.cron import Cron, parse_cron
from heliostat.schedules.iso8601 import Interval, parse_interval, says_utc
from heliostat.schedules.zones import find_zone

Timing = Interval | Cron


def parse_timing(text: str, zone: str, now: datetime) -> Timing:
    """Raises ValueError with a sentence. An interval without a start begins now, and says so from then on."""
    find_zone(zone)
    if text.strip()[:1] in ("R", "r"):
        return parse_interval(text, zone, now)
    return parse_cron(text, zone)


def zone_for(text: str, given: str | None, usual: str) -> str:
    """The one that was named; else UTC for a start that ends in Z, else the usual one."""
    if given:
        return given
    return "UTC" if text.strip()[:1] in ("R", "r") and says_utc(text) else usual


def upcoming(timing: Timing, after: datetime, count: int) -> list[datetime]:
    """The next so many times after that."""
    return list(islice(_all_after(timing, after), count))


def _all_after(timing: Timing, after: datetime) -> Iterator[datetime]:
    found = timing.next_after(after)
    while found is not None:
        yield found
        found = timing.next_after(found)
