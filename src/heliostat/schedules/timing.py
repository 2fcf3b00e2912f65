"""When a schedule is due, by a repeating interval or a cron line; and what to do with the times that have passed:
fire, make up for, or let go."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from heliostat.schedules.cron import Cron, parse_cron
from heliostat.schedules.iso8601 import Interval, parse_interval, says_utc
from heliostat.schedules.zones import find_zone

Timing = Interval | Cron
MOST_MADE_UP = 1000  # times of one schedule, after it was long forgotten
MOST_COUNTED = 10_000
_INSTANT = timedelta(microseconds=1)
_LONGEST_PUNCTUAL = 60.0
_SHORTEST_PUNCTUAL = 10.0


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


@dataclass(frozen=True, slots=True)
class CatchUpRule:
    """`none`, `last` or `all`; and how late is too late (None: never)."""

    catch_up: str
    epsilon_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Fire this one now, if there is one; before it so many were missed, from the first of them on."""

    due_at: datetime | None
    missed: int = 0
    missed_from: datetime | None = None


def judge(timing: Timing, due_at: datetime, now: datetime, rule: CatchUpRule) -> Verdict:
    """`due_at` is the earliest that was not handled, and it is not later than now."""
    begin = _begin(timing, due_at, now, rule)
    if begin <= due_at:
        return Verdict(due_at)
    fire = timing.next_after(begin - _INSTANT)
    fire = fire if fire is not None and fire <= now else None
    left_out = timing.between(due_at - _INSTANT, (fire or now + _INSTANT) - _INSTANT)
    return Verdict(fire, sum(1 for _ in islice(left_out, MOST_COUNTED)), due_at)


def _begin(timing: Timing, due_at: datetime, now: datetime, rule: CatchUpRule) -> datetime:
    """What was due before this is let go."""
    punctual = now - timedelta(seconds=min(_LONGEST_PUNCTUAL, max(_SHORTEST_PUNCTUAL, timing.usual_seconds)))
    if due_at >= punctual or rule.catch_up == "none":
        return punctual
    oldest = due_at if rule.epsilon_seconds is None else now - timedelta(seconds=rule.epsilon_seconds)
    if rule.catch_up == "last":
        return max(oldest, _last_until(timing, due_at, now))
    newest = list(islice(timing.between(max(oldest, due_at) - _INSTANT, now), MOST_MADE_UP + 1))
    if len(newest) <= MOST_MADE_UP:
        return max(oldest, due_at)
    return max(oldest, now - timedelta(seconds=MOST_MADE_UP * timing.usual_seconds))


def _last_until(timing: Timing, due_at: datetime, now: datetime) -> datetime:
    """The newest time that is not later than now: looked for in ever wider spans."""
    seconds = 2 * timing.usual_seconds
    while now - timedelta(seconds=seconds) > due_at:
        if found := list(timing.between(now - timedelta(seconds=seconds), now)):
            return found[-1]
        seconds *= 4
    return [due_at, *timing.between(due_at, now)][-1]
