"""When a session is warned, and when it ends because nobody uses it. Pure: no clock, disk or network."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from heliostat.models.sessions import Session

_LONGEST_WARNING = timedelta(minutes=15)
_PART = 4  # a warning comes when so much of the time is left, at the latest


@dataclass(frozen=True, slots=True)
class SessionActivity:
    """What was seen of a session."""

    observed_at: datetime
    started_at: datetime
    ends_at: datetime | None  # by its time limit
    is_known: bool = True  # False: nobody could ask it, so nothing is decided
    is_busy: bool = False  # a cell runs, a device works
    last_activity_at: datetime | None = None  # when kernels and terminals last did something


class SessionAction(StrEnum):
    WARN_IDLE = "warn_idle"
    END_IDLE = "end_idle"
    WARN_END = "warn_end"


def decide_actions(
    session: Session, look: SessionActivity, idle_after: timedelta | None
) -> tuple[Session, frozenset[SessionAction]]:
    """What is to be remembered of it, and done. A session is only ended if it was warned a while before, has not
    been used since, and is seen idle at this very look."""
    session, end = _told_of_end(session, look)
    if not look.is_known:
        return session, end
    active_at = _last_use(session, look)
    warned_at = session.idle_warned_at
    if warned_at is not None and (active_at > warned_at or warned_at > look.observed_at):
        warned_at = None  # used since; or the clock was set back
    session = replace(session, active_at=active_at, idle_warned_at=warned_at)
    if look.is_busy or session.keep_idle or idle_after is None:
        return replace(session, idle_warned_at=None), end
    warning, idle = warning_lead_time(idle_after), look.observed_at - active_at
    if warned_at is None:
        if idle < idle_after - warning:
            return session, end
        return replace(session, idle_warned_at=look.observed_at), end | {SessionAction.WARN_IDLE}
    if idle >= idle_after and look.observed_at - warned_at >= warning:
        return session, end | {SessionAction.END_IDLE}
    return session, end


def needs_write(before: Session, after: Session, idle_after: timedelta | None) -> bool:
    """Whether it is worth a write: that a session is still in use need not be kept to the second."""
    if replace(after, active_at=before.active_at) != before:
        return True
    if idle_after is None or after.active_at is None or after.active_at == before.active_at:
        return False
    return before.active_at is None or abs(after.active_at - before.active_at) >= idle_after / 20


def warning_lead_time(whole: timedelta) -> timedelta:
    """How long before the end of such a time somebody is warned."""
    return min(_LONGEST_WARNING, whole / _PART)


def _last_use(session: Session, look: SessionActivity) -> datetime:
    """Never in the future: a server inside a job may say what it likes. Its first answer counts as use."""
    if look.is_busy or session.active_at is None:
        return look.observed_at
    known = [time for time in (look.started_at, session.active_at, look.last_activity_at) if time is not None]
    return min(look.observed_at, max(known))


def _told_of_end(session: Session, look: SessionActivity) -> tuple[Session, frozenset[SessionAction]]:
    """Once for each end: one that is put off is told again."""
    ends_at = look.ends_at
    if ends_at is None or session.end_warned_at == ends_at or look.observed_at >= ends_at:
        return session, frozenset()
    if ends_at - look.observed_at > warning_lead_time(ends_at - look.started_at):
        return session, frozenset()
    return replace(session, end_warned_at=ends_at), frozenset({SessionAction.WARN_END})
