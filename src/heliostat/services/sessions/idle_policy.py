"""Idle policy: when the owner of a session gets a warning, and when an idle session ends. Pure functions."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from heliostat.models.sessions import Session

_MAX_LEAD_TIME = timedelta(minutes=15)
_LEAD_DIVISOR = 4  # a warning is sent at the latest when 1/4 of the time is left


@dataclass(frozen=True, slots=True)
class SessionActivity:
    """Observed activity of a session."""

    observed_at: datetime
    started_at: datetime
    ends_at: datetime | None  # by its time limit
    is_known: bool = True  # False: the server was not polled or did not respond, so idleness is not decided
    is_busy: bool = False  # a cell runs, or a device is in use
    last_activity_at: datetime | None = None  # of kernels and terminals


class SessionAction(StrEnum):
    WARN_IDLE = "warn_idle"
    END_IDLE = "end_idle"
    WARN_END = "warn_end"


def decide_actions(
    session: Session, activity: SessionActivity, idle_after: timedelta | None
) -> tuple[Session, frozenset[SessionAction]]:
    """The session to store, and the actions to take. A session ends only if its owner was warned a while before,
    it was not used since then, and it is idle now."""
    session, end = _warn_of_end(session, activity)
    if not activity.is_known:
        return session, end
    active_at = _last_use(session, activity)
    warned_at = session.idle_warned_at
    if warned_at is not None and (active_at > warned_at or warned_at > activity.observed_at):
        warned_at = None  # used since then, or the clock was set back
    session = replace(session, active_at=active_at, idle_warned_at=warned_at)
    if activity.is_busy or session.keep_idle or idle_after is None:
        return replace(session, idle_warned_at=None), end
    warning, idle = warning_lead_time(idle_after), activity.observed_at - active_at
    if warned_at is None:
        if idle < idle_after - warning:
            return session, end
        return replace(session, idle_warned_at=activity.observed_at), end | {SessionAction.WARN_IDLE}
    if idle >= idle_after and activity.observed_at - warned_at >= warning:
        return session, end | {SessionAction.END_IDLE}
    return session, end


def needs_write(before: Session, after: Session, idle_after: timedelta | None) -> bool:
    """Whether the change must be stored: small changes of the last activity are not."""
    if replace(after, active_at=before.active_at) != before:
        return True
    if idle_after is None or after.active_at is None or after.active_at == before.active_at:
        return False
    return before.active_at is None or abs(after.active_at - before.active_at) >= idle_after / 20


def warning_lead_time(period: timedelta) -> timedelta:
    """How long before the end of a period of this length the owner gets a warning."""
    return min(_MAX_LEAD_TIME, period / _LEAD_DIVISOR)


def _last_use(session: Session, activity: SessionActivity) -> datetime:
    """Never in the future: a server inside a job is not trusted. Its first response counts as use."""
    if activity.is_busy or session.active_at is None:
        return activity.observed_at
    known = [
        time for time in (activity.started_at, session.active_at, activity.last_activity_at) if time is not None
    ]
    return min(activity.observed_at, max(known))


def _warn_of_end(session: Session, activity: SessionActivity) -> tuple[Session, frozenset[SessionAction]]:
    """Once for each end: an extended session gets another warning."""
    ends_at = activity.ends_at
    if ends_at is None or session.end_warned_at == ends_at or activity.observed_at >= ends_at:
        return session, frozenset()
    if ends_at - activity.observed_at > warning_lead_time(ends_at - activity.started_at):
        return session, frozenset()
    return replace(session, end_warned_at=ends_at), frozenset({SessionAction.WARN_END})
