"""Due times of schedules, by repeating interval or cron, and the decision to fire, catch up or skip."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from heliostat.schedules.cron import CronSchedule, parse_cron
from heliostat.schedules.iso8601 import RepeatingInterval, has_utc_start, parse_interval
from heliostat.schedules.time_zones import find_zone

Timing = RepeatingInterval | CronSchedule
MAX_CATCH_UP_FIRINGS = 1000  # per schedule
MAX_COUNTED_MISSES = 10_000
_INSTANT = timedelta(microseconds=1)
_LONGEST_PUNCTUAL = 60.0
_SHORTEST_PUNCTUAL = 10.0


def parse_timing(text: str, zone: str, now: datetime) -> Timing:
    """Raises ValueError with a message for users. An interval without a start begins now."""
    find_zone(zone)
    if text.strip()[:1] in ("R", "r"):
        return parse_interval(text, zone, now)
    return parse_cron(text, zone)


def choose_zone(text: str, given: str | None, default: str) -> str:
    """The given zone; else UTC for a start that ends in Z, else the default."""
    if given:
        return given
    return "UTC" if text.strip()[:1] in ("R", "r") and has_utc_start(text) else default


def list_next_times(timing: Timing, after: datetime, count: int) -> list[datetime]:
    """The next `count` times after `after`."""
    return list(islice(_all_after(timing, after), count))


def _all_after(timing: Timing, after: datetime) -> Iterator[datetime]:
    time = timing.next_after(after)
    while time is not None:
        yield time
        time = timing.next_after(time)


@dataclass(frozen=True, slots=True)
class CatchUpRule:
    """Which missed times to catch up."""

    catch_up: str  # none, last, all
    epsilon_seconds: int | None = None  # older times are skipped; None: no limit


@dataclass(frozen=True, slots=True)
class FiringDecision:
    """The time to fire now, and the missed times before it."""

    due_at: datetime | None  # None: do not fire
    missed_count: int = 0
    missed_from: datetime | None = None  # the first missed time


def decide_firing(timing: Timing, due_at: datetime, now: datetime, rule: CatchUpRule) -> FiringDecision:
    """`due_at` is the earliest time that was not handled; it is not after `now`."""
    begin = _begin(timing, due_at, now, rule)
    if begin <= due_at:
        return FiringDecision(due_at)
    fire = timing.next_after(begin - _INSTANT)
    fire = fire if fire is not None and fire <= now else None
    skipped = timing.times_between(due_at - _INSTANT, (fire or now + _INSTANT) - _INSTANT)
    return FiringDecision(fire, sum(1 for _ in islice(skipped, MAX_COUNTED_MISSES)), due_at)


def _begin(timing: Timing, due_at: datetime, now: datetime, rule: CatchUpRule) -> datetime:
    """Times before this are skipped."""
    punctual = now - timedelta(seconds=min(_LONGEST_PUNCTUAL, max(_SHORTEST_PUNCTUAL, timing.typical_seconds)))
    if due_at >= punctual or rule.catch_up == "none":
        return punctual
    oldest = due_at if rule.epsilon_seconds is None else now - timedelta(seconds=rule.epsilon_seconds)
    if rule.catch_up == "last":
        return max(oldest, _last_until(timing, due_at, now))
    newest = list(islice(timing.times_between(max(oldest, due_at) - _INSTANT, now), MAX_CATCH_UP_FIRINGS + 1))
    if len(newest) <= MAX_CATCH_UP_FIRINGS:
        return max(oldest, due_at)
    return max(oldest, now - timedelta(seconds=MAX_CATCH_UP_FIRINGS * timing.typical_seconds))


def _last_until(timing: Timing, due_at: datetime, now: datetime) -> datetime:
    """The last time up to now, searched in growing intervals."""
    seconds = 2 * timing.typical_seconds
    while now - timedelta(seconds=seconds) > due_at:
        if times := list(timing.times_between(now - timedelta(seconds=seconds), now)):
            return times[-1]
        seconds *= 4
    return [due_at, *timing.times_between(due_at, now)][-1]
