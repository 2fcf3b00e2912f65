"""Idle policy: a warning before the end, an end only for idle sessions, never for busy ones."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from heliostat.models.sessions import Session
from heliostat.services.sessions.idle_policy import (
    SessionAction,
    SessionActivity,
    decide_actions,
    needs_write,
    warning_lead_time,
)

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NEW = Session(12, "jupyter", "secret", active_at=START)


def look(minutes: float, **seen: object) -> SessionActivity:
    return SessionActivity(START + timedelta(minutes=minutes), START, None, **seen)  # type: ignore[arg-type]


def test_an_idle_session_is_warned_and_then_ended() -> None:
    session, acts = decide_actions(NEW, look(44), HOUR)
    assert not acts
    session, acts = decide_actions(session, look(45), HOUR)
    assert acts == {SessionAction.WARN_IDLE}
    session, acts = decide_actions(session, look(50), HOUR)
    assert not acts
    session, acts = decide_actions(session, look(60), HOUR)
    assert acts == {SessionAction.END_IDLE}


def test_a_busy_session_is_never_ended_and_its_warning_is_withdrawn() -> None:
    warned, _ = decide_actions(NEW, look(45), HOUR)
    session, acts = decide_actions(warned, look(600, is_busy=True), HOUR)
    assert (acts, session.idle_warned_at) == (frozenset(), None)
    assert decide_actions(session, look(640), HOUR)[1] == frozenset()


def test_use_after_the_warning_counts() -> None:
    warned, _ = decide_actions(NEW, look(45), HOUR)
    session, acts = decide_actions(warned, look(60, last_activity_at=START + timedelta(minutes=50)), HOUR)
    assert (acts, session.idle_warned_at) == (frozenset(), None)


def test_after_a_long_pause_of_the_server_the_warning_comes_first() -> None:
    session, acts = decide_actions(NEW, look(6000), HOUR)
    assert acts == {SessionAction.WARN_IDLE}
    assert decide_actions(session, look(6001), HOUR)[1] == frozenset()
    assert decide_actions(session, look(6015), HOUR)[1] == {SessionAction.END_IDLE}


def test_unknown_or_exempt_sessions_are_not_ended() -> None:
    warned, _ = decide_actions(NEW, look(45), HOUR)
    assert decide_actions(warned, look(600, is_known=False), HOUR)[1] == frozenset()
    assert decide_actions(replace(warned, keep_idle=True), look(600), HOUR)[1] == frozenset()
    assert decide_actions(warned, look(600), None)[1] == frozenset()


def test_the_time_limit_is_announced_once_and_again_after_an_extension() -> None:
    def at(minutes: float, end: float) -> SessionActivity:
        return replace(look(minutes, is_known=False), ends_at=START + timedelta(minutes=end))

    session, acts = decide_actions(NEW, at(44, 60), None)
    assert not acts
    session, acts = decide_actions(session, at(46, 60), None)
    assert acts == {SessionAction.WARN_END}
    assert not decide_actions(session, at(50, 60), None)[1]
    assert not decide_actions(session, at(50, 120), None)[1]
    assert decide_actions(session, at(106, 120), None)[1] == {SessionAction.WARN_END}


@dataclass(frozen=True)
class Moment:
    minutes: int
    is_known: bool
    is_busy: bool
    used_minutes_ago: int | None


MOMENTS = st.lists(
    st.builds(
        Moment,
        minutes=st.integers(0, 40),
        is_known=st.booleans(),
        is_busy=st.booleans(),
        used_minutes_ago=st.none() | st.integers(-100, 200),
    ),
    max_size=40,
)


@given(MOMENTS, st.integers(4, 120), st.booleans())
def test_a_session_is_never_ended_unwarned_busy_or_in_use(
    moments: list[Moment], minutes: int, keep_idle: bool
) -> None:
    whole, session, now = timedelta(minutes=minutes), replace(NEW, keep_idle=keep_idle), START
    warned_at: datetime | None = None
    last_use = START
    for moment in moments:
        now += timedelta(minutes=moment.minutes)
        ago = moment.used_minutes_ago
        used_at = None if ago is None else now - timedelta(minutes=ago)
        seen = SessionActivity(now, START, None, moment.is_known, moment.is_busy, used_at)
        session, acts = decide_actions(session, seen, whole)
        if moment.is_known:
            last_use = now if moment.is_busy else max(last_use, min(now, used_at or START))
        if SessionAction.WARN_IDLE in acts:
            warned_at = now
        if SessionAction.END_IDLE in acts:
            assert moment.is_known
            assert not moment.is_busy
            assert not keep_idle
            assert warned_at is not None
            assert now - warned_at >= warning_lead_time(whole)
            assert now - last_use >= whole
            assert last_use <= warned_at
            return


@given(st.integers(1, 10_000), st.integers(1, 300))
def test_an_unused_session_ends_within_its_limit_and_two_polls(minutes: int, pause: int) -> None:
    whole = timedelta(minutes=minutes)
    session, now, acts = NEW, START, frozenset[SessionAction]()
    while SessionAction.END_IDLE not in acts:
        now += timedelta(seconds=pause)
        session, acts = decide_actions(session, SessionActivity(now, START, None), whole)
        assert now - START <= whole + warning_lead_time(whole) + timedelta(seconds=2 * pause)
        if now - START < whole - warning_lead_time(whole) - timedelta(seconds=pause):
            now = START + whole - warning_lead_time(whole) - timedelta(seconds=pause)


def test_time_before_the_first_response_is_not_idle() -> None:
    session, acts = decide_actions(replace(NEW, active_at=None), look(500), HOUR)
    assert (acts, session.active_at) == (frozenset(), START + timedelta(minutes=500))


def test_a_session_in_use_is_not_written_at_every_poll() -> None:
    new = replace(NEW, active_at=None)
    session, _ = decide_actions(new, look(1, is_busy=True), HOUR)
    assert needs_write(new, session, HOUR)
    later, _ = decide_actions(session, look(2, is_busy=True), HOUR)
    assert not needs_write(session, later, HOUR)
    assert needs_write(session, decide_actions(session, look(5, is_busy=True), HOUR)[0], HOUR)
