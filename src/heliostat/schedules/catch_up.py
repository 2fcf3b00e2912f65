"""What to do with the times at which a schedule was due: fire, make up for, or let go."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from heliostat.schedules.timing import Timing

MOST_MADE_UP = 1000  # times of one schedule, after it was long forgotten
MOST_COUNTED = 10_000
_INSTANT = timedelta(microseconds=1)
_LONGEST_PUNCTUAL = 60.0
_SHORTEST_PUNCTUAL = 10.0


@dataclass(frozen=True, slots=True)
class Rule:
    """`none`, `last` or `all`; and how late is too late (None: never)."""

    catch_up: str
    epsilon_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Fire this one now, if there is one; before it so many were missed, from the first of them on."""

    due_at: datetime | None
    missed: int = 0
    missed_from: datetime | None = None


def judge(timing: Timing, due_at: datetime, now: datetime, rule: Rule) -> Verdict:
    """`due_at` is the earliest that was not handled, and it is not later than now."""
    begin = _begin(timing, due_at, now, rule)
    if begin <= due_at:
        return Verdict(due_at)
    fire = timing.next_after(begin - _INSTANT)
    fire = fire if fire is not None and fire <= now else None
    left_out = timing.between(due_at - _INSTANT, (fire or now + _INSTANT) - _INSTANT)
    return Verdict(fire, sum(1 for _ in islice(left_out, MOST_COUNTED)), due_at)


def _begin(timing: Timing, due_at: datetime, now: datetime, rule: Rule) -> datetime:
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
